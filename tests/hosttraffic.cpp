// Transfers of any kind on the ports of a device, for behind harness.cpp. In a transfer with pauses, which are a seed,
// every side of every channel rests in about a third of the cycles.

namespace {

constexpr int WRONG_ORDER = -2;  // an identifier or a last beat that is not as asked for
constexpr int LONG = 100'000;

struct Pauses {
    uint32_t seed;
    bool rest() {
        if (!seed) return false;
        seed = seed * 1664525u + 1013904223u;
        if (!seed) seed = 1;
        return (seed >> 16) % 3 == 0;
    }
};

}  // namespace

extern "C" {

int wl_control_write(void* handle, uint32_t address, uint32_t value, uint32_t strobe, uint32_t seed) {
    Device& d = device(handle);
    Vtop& top = *d.top;
    Pauses pauses{seed};
    bool aw_left = true, w_left = true;
    for (int n = 0; n < LONG; ++n) {
        if (aw_left && !top.control_awvalid && !pauses.rest()) top.control_awaddr = address, top.control_awvalid = 1;
        if (w_left && !top.control_wvalid && !pauses.rest())
            top.control_wdata = value, top.control_wstrb = strobe, top.control_wvalid = 1;
        top.control_bready = !pauses.rest();
        const bool aw = top.control_awvalid && top.control_awready, w = top.control_wvalid && top.control_wready;
        const bool b = top.control_bvalid && top.control_bready;
        const int response = top.control_bresp;
        d.step();
        if (aw) top.control_awvalid = 0, aw_left = false;
        if (w) top.control_wvalid = 0, w_left = false;
        if (b) return top.control_bready = 0, response;
    }
    return NO_ANSWER;
}

int wl_control_read(void* handle, uint32_t address, uint32_t seed, uint32_t* value) {
    Device& d = device(handle);
    Vtop& top = *d.top;
    Pauses pauses{seed};
    bool left = true;
    for (int n = 0; n < LONG; ++n) {
        if (left && !top.control_arvalid && !pauses.rest()) top.control_araddr = address, top.control_arvalid = 1;
        top.control_rready = !pauses.rest();
        const bool ar = top.control_arvalid && top.control_arready, r = top.control_rvalid && top.control_rready;
        const int response = top.control_rresp;
        *value = top.control_rdata;
        d.step();
        if (ar) top.control_arvalid = 0, left = false;
        if (r) return top.control_rready = 0, response;
    }
    return NO_ANSWER;
}

int wl_burst_write(void* handle, uint32_t id, uint64_t address, uint32_t count, uint32_t size, uint32_t burst,
                   const uint32_t* words, const uint8_t* strobes, uint32_t seed, uint32_t* found_id) {
    Device& d = device(handle);
    Vtop& top = *d.top;
    Pauses pauses{seed};
    bool left = true;
    uint32_t sent = 0;
    for (int n = 0; n < LONG; ++n) {
        if (left && !top.window_awvalid && !pauses.rest()) {
            top.window_awid = id, top.window_awaddr = address, top.window_awlen = count - 1;
            top.window_awsize = size, top.window_awburst = burst, top.window_awvalid = 1;
        }
        if (sent < count && !top.window_wvalid && !pauses.rest()) {
            top.window_wdata = words[sent], top.window_wstrb = strobes[sent];
            top.window_wlast = sent + 1 == count, top.window_wvalid = 1;
        }
        top.window_bready = !pauses.rest();
        const bool aw = top.window_awvalid && top.window_awready, w = top.window_wvalid && top.window_wready;
        const bool b = top.window_bvalid && top.window_bready;
        const int response = top.window_bresp;
        *found_id = top.window_bid;
        d.step();
        if (aw) top.window_awvalid = 0, left = false;
        if (w) top.window_wvalid = 0, ++sent;
        if (b) return top.window_bready = 0, sent == count ? response : WRONG_ORDER;
    }
    return NO_ANSWER;
}

// 0, or why the beats are not what was asked for.
int wl_burst_read(void* handle, uint32_t id, uint64_t address, uint32_t count, uint32_t size, uint32_t burst,
                  uint32_t* words, uint8_t* responses, uint32_t seed) {
    Device& d = device(handle);
    Vtop& top = *d.top;
    Pauses pauses{seed};
    bool left = true, wrong = false;
    uint32_t got = 0;
    for (int n = 0; n < LONG; ++n) {
        if (left && !top.window_arvalid && !pauses.rest()) {
            top.window_arid = id, top.window_araddr = address, top.window_arlen = count - 1;
            top.window_arsize = size, top.window_arburst = burst, top.window_arvalid = 1;
        }
        top.window_rready = !pauses.rest();
        const bool ar = top.window_arvalid && top.window_arready;
        if (top.window_rvalid && top.window_rready) {
            words[got] = top.window_rdata, responses[got] = top.window_rresp;
            wrong |= top.window_rid != id || top.window_rlast != (got + 1 == count);
            ++got;
        }
        d.step();
        if (ar) top.window_arvalid = 0, left = false;
        if (got == count) return top.window_rready = 0, wrong ? WRONG_ORDER : 0;
    }
    return NO_ANSWER;
}

}  // extern "C"
