// Transfers of any kind on the ports of a device, for behind harness.cpp. Several may be under way at once: a channel
// offers its next transfer as soon as the one before is taken. With pauses, which are a seed, every side of every
// channel rests in about half of the cycles, for a while each time.

namespace {

constexpr int WRONG_ORDER = -2;  // an answer to nothing, an identifier or a last beat that is not as asked for
constexpr int LONG = 100'000;

struct Pauses {
    uint32_t seed;
    uint32_t left[5] = {};
    bool resting[5] = {};
    bool rest(int channel) {
        if (!seed) return false;
        if (!left[channel]) {
            seed = seed * 1664525u + 1013904223u;
            if (!seed) seed = 1;
            resting[channel] = seed >> 20 & 1;
            left[channel] = 1 + (seed >> 24) % 7;
        }
        --left[channel];
        return resting[channel];
    }
};

struct Burst {
    uint64_t address;
    uint32_t id, count, size, kind;
};

}  // namespace

extern "C" {

int wl_control_writes(void* handle, uint32_t count, const uint32_t* addresses, const uint32_t* values,
                      const uint8_t* strobes, uint32_t seed, uint8_t* answers) {
    Device& d = device(handle);
    Vtop& top = *d.top;
    Pauses pauses{seed};
    uint32_t aws = 0, ws = 0, bs = 0;
    bool early = false;
    for (int n = 0; n < LONG; ++n) {
        if (aws < count && !top.control_awvalid && !pauses.rest(0))
            top.control_awaddr = addresses[aws], top.control_awvalid = 1;
        if (ws < count && !top.control_wvalid && !pauses.rest(1))
            top.control_wdata = values[ws], top.control_wstrb = strobes[ws], top.control_wvalid = 1;
        top.control_bready = !pauses.rest(2);
        const bool aw = top.control_awvalid && top.control_awready, w = top.control_wvalid && top.control_wready;
        if (top.control_bvalid && top.control_bready) {
            early |= bs >= aws || bs >= ws;
            answers[bs++] = top.control_bresp;
        }
        d.step();
        if (aw) top.control_awvalid = 0, ++aws;
        if (w) top.control_wvalid = 0, ++ws;
        if (bs == count) return top.control_bready = 0, early ? WRONG_ORDER : 0;
    }
    return NO_ANSWER;
}

int wl_control_reads(void* handle, uint32_t count, const uint32_t* addresses, uint32_t seed, uint32_t* values,
                     uint8_t* answers) {
    Device& d = device(handle);
    Vtop& top = *d.top;
    Pauses pauses{seed};
    uint32_t ars = 0, rs = 0;
    bool early = false;
    for (int n = 0; n < LONG; ++n) {
        if (ars < count && !top.control_arvalid && !pauses.rest(0))
            top.control_araddr = addresses[ars], top.control_arvalid = 1;
        top.control_rready = !pauses.rest(1);
        const bool ar = top.control_arvalid && top.control_arready;
        if (top.control_rvalid && top.control_rready) {
            early |= rs >= ars;
            values[rs] = top.control_rdata, answers[rs++] = top.control_rresp;
        }
        d.step();
        if (ar) top.control_arvalid = 0, ++ars;
        if (rs == count) return top.control_rready = 0, early ? WRONG_ORDER : 0;
    }
    return NO_ANSWER;
}

// Words and strobes of one burst behind those of the other; an answer for each burst.
int wl_window_writes(void* handle, uint32_t count, const Burst* bursts, const uint32_t* words, const uint8_t* strobes,
                     uint32_t seed, uint8_t* answers) {
    Device& d = device(handle);
    Vtop& top = *d.top;
    Pauses pauses{seed};
    uint32_t aws = 0, ws = 0, beat = 0, word = 0, bs = 0;
    bool wrong = false;
    for (int n = 0; n < LONG; ++n) {
        if (aws < count && !top.window_awvalid && !pauses.rest(0)) {
            const Burst& burst = bursts[aws];
            top.window_awid = burst.id, top.window_awaddr = burst.address, top.window_awlen = burst.count - 1;
            top.window_awsize = burst.size, top.window_awburst = burst.kind, top.window_awvalid = 1;
        }
        if (ws < count && !top.window_wvalid && !pauses.rest(1)) {
            top.window_wdata = words[word], top.window_wstrb = strobes[word];
            top.window_wlast = beat + 1 == bursts[ws].count, top.window_wvalid = 1;
        }
        top.window_bready = !pauses.rest(2);
        const bool aw = top.window_awvalid && top.window_awready, w = top.window_wvalid && top.window_wready;
        if (top.window_bvalid && top.window_bready) {
            wrong |= top.window_bid != bursts[bs].id || bs >= aws || bs >= ws;
            answers[bs++] = top.window_bresp;
        }
        d.step();
        if (aw) top.window_awvalid = 0, ++aws;
        if (w) {
            top.window_wvalid = 0, ++word;
            if (++beat == bursts[ws].count) beat = 0, ++ws;
        }
        if (bs == count) return top.window_bready = 0, wrong ? WRONG_ORDER : 0;
    }
    return NO_ANSWER;
}

// Words and answers, one for each beat, of one burst behind those of the other.
int wl_window_reads(void* handle, uint32_t count, const Burst* bursts, uint32_t seed, uint32_t* words,
                    uint8_t* answers) {
    Device& d = device(handle);
    Vtop& top = *d.top;
    Pauses pauses{seed};
    uint32_t ars = 0, rs = 0, beat = 0, word = 0;
    bool wrong = false;
    for (int n = 0; n < LONG; ++n) {
        if (ars < count && !top.window_arvalid && !pauses.rest(0)) {
            const Burst& burst = bursts[ars];
            top.window_arid = burst.id, top.window_araddr = burst.address, top.window_arlen = burst.count - 1;
            top.window_arsize = burst.size, top.window_arburst = burst.kind, top.window_arvalid = 1;
        }
        top.window_rready = !pauses.rest(1);
        const bool ar = top.window_arvalid && top.window_arready;
        if (top.window_rvalid && top.window_rready) {
            words[word] = top.window_rdata, answers[word++] = top.window_rresp;
            const bool last = ++beat == bursts[rs].count;
            wrong |= rs >= ars || top.window_rid != bursts[rs].id || bool(top.window_rlast) != last;
            if (last) beat = 0, ++rs;
        }
        d.step();
        if (ar) top.window_arvalid = 0, ++ars;
        if (rs == count) return top.window_rready = 0, wrong ? WRONG_ORDER : 0;
    }
    return NO_ANSWER;
}

}  // extern "C"
