// What a Python process needs of the simulated device: clock, AXI ports, and pointers to the memories.
//
// Every function takes the handle that wl_open made. Functions that wait for the device give up after PATIENCE
// cycles and return NO_ANSWER; otherwise they return the AXI response.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "Vtop.h"
#include "verilated.h"
#include "verilated_syms.h"
#if VM_TRACE_FST
#include "verilated_fst_c.h"
using Tracer = VerilatedFstC;
#elif VM_TRACE
#include "verilated_vcd_c.h"
using Tracer = VerilatedVcdC;
#endif

namespace {

constexpr int NO_ANSWER = -1;
constexpr int PATIENCE = 10'000;
constexpr int RESET_CYCLES = 4;
constexpr int WORD_SIZE = 2;   // log2 of the bytes of a beat
constexpr int INCREMENT = 1;   // AXI burst kind

struct Device {
    VerilatedContext context;
    std::unique_ptr<Vtop> top;
    uint64_t cycles = 0;
#if VM_TRACE
    std::unique_ptr<Tracer> tracer;
#endif

    Device() {
        context.debug(0);
        context.randReset(0);
#if VM_TRACE
        context.traceEverOn(true);
#endif
        top = std::make_unique<Vtop>(&context, "");
    }

    ~Device() {
#if VM_TRACE
        if (tracer) tracer->close();
#endif
        // The scopes take themselves off the current context, which may be that of another, closed device.
        Verilated::threadContextp(&context);
        top->final();
        top.reset();
    }

    void step() {
        top->clk = 0;
        top->eval();
        dump(0);
        top->clk = 1;
        top->eval();
        dump(1);
        ++cycles;
    }

    void dump(int half) {
#if VM_TRACE
        if (tracer) tracer->dump(2 * cycles + half);
#else
        (void)half;
#endif
    }

    // One clock, then lower `valid` if it was taken. Ready comes from a register, so it is known before the edge.
    template <typename Ready>
    void step_with(CData& valid, const Ready& ready) {
        const bool taken = valid && ready;
        step();
        if (taken) valid = 0;
    }
};

Device& device(void* handle) { return *static_cast<Device*>(handle); }

}  // namespace

extern "C" {

void* wl_open() {
    auto* d = new Device;
    d->top->rst = 1;
    for (int n = 0; n < RESET_CYCLES; ++n) d->step();
    d->top->rst = 0;
    d->step();
    return d;
}

void wl_close(void* handle) { delete &device(handle); }

uint64_t wl_cycles(void* handle) { return device(handle).cycles; }

// Write a waveform from now on; 0 when the library was built without.
int wl_trace(void* handle, const char* path) {
#if VM_TRACE
    Device& d = device(handle);
    d.tracer = std::make_unique<Tracer>();
    d.top->trace(d.tracer.get(), 99);
    d.tracer->open(path);
    return 1;
#else
    (void)handle, (void)path;
    return 0;
#endif
}

// Clock until the interrupt rises, for at most `cycles`; the number of cycles clocked.
uint64_t wl_advance(void* handle, uint64_t cycles) {
    Device& d = device(handle);
    uint64_t n = 0;
    while (n < cycles && !d.top->irq) {
        d.step();
        ++n;
    }
    return n;
}

int wl_register_write(void* handle, uint32_t address, uint32_t value) {
    Device& d = device(handle);
    Vtop& top = *d.top;
    top.control_awaddr = address;
    top.control_wdata = value;
    top.control_wstrb = 0xF;
    top.control_awvalid = top.control_wvalid = top.control_bready = 1;
    for (int n = 0; n < PATIENCE; ++n) {
        const bool aw = top.control_awvalid && top.control_awready, w = top.control_wvalid && top.control_wready;
        const bool answered = top.control_bvalid;
        const int response = top.control_bresp;
        d.step();
        if (aw) top.control_awvalid = 0;
        if (w) top.control_wvalid = 0;
        if (answered) {
            top.control_bready = 0;
            return response;
        }
    }
    return NO_ANSWER;
}

int wl_register_read(void* handle, uint32_t address, uint32_t* value) {
    Device& d = device(handle);
    Vtop& top = *d.top;
    top.control_araddr = address;
    top.control_arvalid = top.control_rready = 1;
    for (int n = 0; n < PATIENCE; ++n) {
        const bool answered = top.control_rvalid;
        const int response = top.control_rresp;
        *value = top.control_rdata;
        d.step_with(top.control_arvalid, top.control_arready);
        if (answered) {
            top.control_rready = 0;
            return response;
        }
    }
    return NO_ANSWER;
}

// One INCR burst of up to 256 words, all bytes strobed. It must not cross a page.
int wl_window_write(void* handle, uint64_t address, uint32_t count, const uint32_t* words) {
    Device& d = device(handle);
    Vtop& top = *d.top;
    top.window_awid = 0;
    top.window_awaddr = address;
    top.window_awlen = count - 1;
    top.window_awsize = WORD_SIZE;
    top.window_awburst = INCREMENT;
    top.window_awvalid = top.window_bready = top.window_wvalid = 1;
    top.window_wstrb = 0xF;
    uint32_t sent = 0;
    for (uint32_t n = 0; n < PATIENCE + 8 * count; ++n) {
        top.window_wdata = words[std::min(sent, count - 1)];
        top.window_wlast = sent == count - 1;
        const bool w = top.window_wvalid && top.window_wready, answered = top.window_bvalid;
        const int response = top.window_bresp;
        d.step_with(top.window_awvalid, top.window_awready);
        if (w && ++sent == count) top.window_wvalid = 0;
        if (answered) {
            top.window_bready = 0;
            return response;
        }
    }
    return NO_ANSWER;
}

// One INCR burst of up to 256 words; the worst response of its beats.
int wl_window_read(void* handle, uint64_t address, uint32_t count, uint32_t* words) {
    Device& d = device(handle);
    Vtop& top = *d.top;
    top.window_arid = 0;
    top.window_araddr = address;
    top.window_arlen = count - 1;
    top.window_arsize = WORD_SIZE;
    top.window_arburst = INCREMENT;
    top.window_arvalid = top.window_rready = 1;
    uint32_t got = 0;
    int response = 0;
    for (uint32_t n = 0; n < PATIENCE + 32 * count; ++n) {
        if (top.window_rvalid) {
            words[got++] = top.window_rdata;
            response = std::max<int>(response, top.window_rresp);
        }
        d.step_with(top.window_arvalid, top.window_arready);
        if (got == count) {
            top.window_rready = 0;
            return response;
        }
    }
    return NO_ANSWER;
}

// The storage of the memory in the scope whose name ends in `suffix`; null if there is none. Sets its size.
// A `$` and a number behind an instance's name are Yosys's, for an instance called like a signal.
void* wl_memory(void* handle, const char* suffix, uint32_t* entries, uint32_t* entry_bytes) {
    const std::string wanted = std::string(".") + suffix;
    for (const auto& [name, scope] : *device(handle).context.scopeNameMap()) {
        std::string found = name;
        found.resize(std::min(found.rfind('$'), found.size()));
        if (found.size() < wanted.size() || found.compare(found.size() - wanted.size(), wanted.size(), wanted)) continue;
        if (VerilatedVar* var = scope->varFind("storage")) {
            *entry_bytes = var->entSize();
            *entries = var->totalSize() / *entry_bytes;
            return var->datap();
        }
    }
    return nullptr;
}

// Names of all scopes with a storage, one a line, for messages.
size_t wl_memories(void* handle, char* text, size_t size) {
    std::string all;
    for (const auto& [name, scope] : *device(handle).context.scopeNameMap())
        if (scope->varFind("storage")) all += std::string(name) + "\n";
    if (size) {
        const size_t n = std::min(size - 1, all.size());
        std::memcpy(text, all.data(), n);
        text[n] = 0;
    }
    return all.size();
}

// Entries of `words` words: out[entry][word][tile] = memories[tile][entry][word].
void wl_gather(uint32_t* const* memories, uint32_t tiles, uint64_t entries, uint32_t words, uint32_t* out) {
    // Some entries at a time: the writes are contiguous, and the reads of a tile stay in the cache.
    constexpr uint64_t SOME = 64;
    for (uint64_t first = 0; first < entries; first += SOME) {
        const uint64_t begin = first * words, end = std::min(entries, first + SOME) * words;
        for (uint32_t t = 0; t < tiles; ++t) {
            const uint32_t* memory = memories[t];
            for (uint64_t n = begin; n < end; ++n) out[n * tiles + t] = memory[n];
        }
    }
}

// The other way round.
void wl_scatter(uint32_t* const* memories, uint32_t tiles, uint64_t entries, uint32_t words, const uint32_t* in) {
    constexpr uint64_t SOME = 64;
    for (uint64_t first = 0; first < entries; first += SOME) {
        const uint64_t begin = first * words, end = std::min(entries, first + SOME) * words;
        for (uint32_t t = 0; t < tiles; ++t) {
            uint32_t* memory = memories[t];
            for (uint64_t n = begin; n < end; ++n) memory[n] = in[n * tiles + t];
        }
    }
}

}  // extern "C"
