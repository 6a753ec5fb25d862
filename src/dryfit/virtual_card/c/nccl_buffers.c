// NCCL takes device memory of its own: its kernels, and buffers for each rank that a rank is connected to, on each of
// its channels. How many channels there are depends on the links between the cards, which nobody knows here; so every
// figure has a low and a high end, and the card loses the expected one.
//
// The sizes are those of NCCL's source (github.com/NVIDIA/nccl, 2.30: src/init.cc, src/transport/{p2p,net,nvls}.cc,
// src/graph/paths.cc). The numbers of channels are those that logs of NCCL show. docs/cards.md compares the sums with
// measurements.
#include "nccl_buffers.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  size_t low, expected, high;
} Range3;
struct Buffers {
  int ranks, rank, device, nodes, local_ranks;
  size_t collectives, local_peers, remote_peers;
  bool is_open, *is_connected;   // to each rank
  Range3 bytes;
  Buffers *next;
};
static Buffers *all, **end_of_all = &all;
static Range3 now[MAX_DEVICES], highest[MAX_DEVICES];
static bool has_kernels[MAX_DEVICES];

// ---- the environment, read when NCCL reads it -----------------------------------------------------------------------
static size_t set_to(const char *name, size_t otherwise) {
  const char *text = getenv(name);
  return text && *text >= '0' && *text <= '9' ? strtoull(text, NULL, 10) : otherwise;
}
static size_t limited(size_t channels, const char *least, const char *most) {
  size_t from = set_to(least, 0), to = set_to(most, SIZE_MAX);
  if (channels < from) channels = from;
  return channels > to ? to : channels;
}

// ---- sizes ----------------------------------------------------------------------------------------------------------
// The buffers of NCCL's three protocols, as long as nobody sets them: 8 lines of 16 bytes, for 512 threads and 8 steps;
// 120 elements of 8 bytes, for 640 threads and 8 steps; and 4 MiB.
static size_t small_buffer(void) { return set_to("NCCL_LL_BUFFSIZE", 512 * KIB); }
static size_t middle_buffer(void) { return set_to("NCCL_LL128_BUFFSIZE", 4800 * KIB); }
static size_t large_buffer(void) { return set_to("NCCL_BUFFSIZE", 4 * MIB); }

// Both directions between two cards of a machine: the receiving end has all three buffers, the sending end its flags;
// both in whole pages. That is 10 MiB and 2 MiB, as github.com/NVIDIA/nccl/issues/1685 shows them.
static size_t connection_bytes(void) {
  return ROUND_UP(small_buffer() + middle_buffer() + large_buffer() + HOST_PAGE, DEVICE_PAGE) + DEVICE_PAGE;
}
// Through a network card that reads the GPU's memory: two of the buffers, at either end.
static size_t network_connection_bytes(void) { return 2 * ROUND_UP(middle_buffer() + large_buffer(), DEVICE_PAGE); }

// Cards that are sold with NVLink between all of a machine: the chips of data centres, but for their PCIe boards.
static bool has_nvlink(void) {
  int sm = card()->sm;
  return (sm == 60 || sm == 70 || sm == 80 || (sm >= 90 && sm < 110)) && !strstr(card()->name, "PCI");
}

// Channels of collective calls. With NVLink: 24 on eight A100 (github.com/NVIDIA/nccl-tests/issues/100), 16 on eight
// H800 and on H100 (nccl/issues/892, 1453), 24 on H100 with newer versions (public logs, which say «24 coll channels»).
// Without: 2 (nccl-tests/issues/228) to 4 (nccl/issues/1706), 8 on H20 over a network (nccl/issues/1189). The upper ends
// are those that measurements need: a job of RTX 3090 had some 900 MiB.
static Range3 channels(void) {
  Range3 found = has_nvlink() ? (Range3){12, 24, 32} : (Range3){2, 4, 32};
  found.low = limited(found.low, "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS");
  found.expected = limited(found.expected, "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS");
  found.high = limited(found.high, "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS");
  return found;
}
// Channels between two ranks that send to each other: 32 on H100, 16 on H800, 2 over PCIe (the same logs).
static Range3 peer_channels(void) {
  Range3 found = has_nvlink() ? (Range3){16, 32, 32} : (Range3){2, 2, 8};
  found.low = limited(found.low, "NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS");
  found.expected = limited(found.expected, "NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS");
  found.high = limited(found.high, "NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS");
  return found;
}

// The code of its kernels, all of which NCCL loads with the first communicator: 98 MiB for an H100 in 2.30 (docs/cards.md
// has the command), and 20 MiB more than without it on a T4 that was one of two.
static const Range3 kernels = {20 * MIB, 100 * MIB, 150 * MIB};

// With NVSwitch, Hopper and later reduce in the switch: two buffers of 8 steps of 128 KiB for each channel and card.
static size_t switch_bytes(const Buffers *of) {
  bool has_switch = has_nvlink() && card()->sm >= 90 && !strstr(card()->name, "NVL") && of->local_ranks > 2;
  size_t lanes = card()->sm >= 100 ? of->nodes > 1 ? 32 : 24 : 16, heads = of->local_ranks < 8 ? of->local_ranks : 8;
  return has_switch && set_to("NCCL_NVLS_ENABLE", 2) ? 2 * MIB * set_to("NCCL_NVLS_NCHANNELS", lanes) * heads : 0;
}

// Ring and tree share their connections to one neighbour; with more than two ranks the tree adds its other direction.
// Low: the ring alone, and without NVLink in host memory. High: as many as versions before 2.22 had, which connect for
// every algorithm at once; with several machines, two of them over the network.
static Range3 collective_bytes(const Buffers *of) {
  if (of->ranks < 2) return (Range3){0};
  Range3 lanes = channels();
  size_t here = connection_bytes(), over = of->nodes > 1 ? network_connection_bytes() : here;
  bool pair = of->ranks == 2;
  return (Range3){
      .low = has_nvlink() ? lanes.low * here : 0,
      .expected = lanes.expected * (pair ? over : here + over) + switch_bytes(of),
      .high = lanes.high * (pair ? 2 * over : 2 * over + here) + switch_bytes(of),
  };
}

// High: 15 MiB a channel instead of 12, which is what an all-to-all among eight H100 took (nccl/issues/1685).
static Range3 local_peer_bytes(void) {
  Range3 lanes = peer_channels();
  size_t each = connection_bytes();
  return (Range3){has_nvlink() ? lanes.low * each : 0, lanes.expected * each, lanes.high * each * 5 / 4};
}
// All peers on other machines share one buffer to send from and one to receive into: 16 pieces of 128 KiB a channel.
static Range3 remote_peers_bytes(void) {
  size_t both = 2 * 32 * 16 * 128 * KIB;
  return (Range3){0, both, 2 * both};
}

// ---- counting -------------------------------------------------------------------------------------------------------
static void add(Range3 *to, Range3 more) {
  to->low += more.low;
  to->expected += more.expected;
  to->high += more.high;
}
static bool charge(int device, Range3 more, Range3 *to) {   // `to`: what can be given back
  bool fits = take_outside(device, more.expected);
  lock_card();
  Range3 *sum = &now[device], *top = &highest[device];
  if (fits && to) add(to, more);
  add(sum, more);
  if (sum->low > top->low) top->low = sum->low;
  if (sum->expected > top->expected) top->expected = sum->expected;
  if (sum->high > top->high) top->high = sum->high;   // what did not fit was needed all the same
  unlock_card();
  return fits;
}

// Since 2.22 NCCL connects when a connection is first needed (release notes; NCCL_RUNTIME_CONNECT=0 turns that off).
static bool connects_when_needed(void) {
  int version;
  ncclGetVersion(&version);
  return version >= 22200 && set_to("NCCL_RUNTIME_CONNECT", 1);
}

Buffers *buffers_of_communicator(int ranks, int rank, int device) {
  if (!is_a_device(device)) return NULL;
  Buffers *made = calloc(1, sizeof *made);
  bool *connected = made ? calloc((size_t)ranks, sizeof *connected) : NULL;
  if (!connected) {
    free(made);
    return NULL;
  }
  // torchrun says how many ranks a machine has; eight is as many cards as most have.
  size_t usual = ranks < 8 ? (size_t)ranks : 8, local = set_to("LOCAL_WORLD_SIZE", usual);
  int here = !local || local > (size_t)ranks ? ranks : (int)local;
  *made = (Buffers){.ranks = ranks, .rank = rank, .device = device, .local_ranks = here, .is_connected = connected};
  made->nodes = (ranks + here - 1) / here;
  made->is_open = true;
  lock_card();
  bool first = !has_kernels[device];
  has_kernels[device] = true;
  *end_of_all = made;
  end_of_all = &made->next;
  unlock_card();
  if (first && !charge(device, kernels, NULL)) return NULL;
  return connects_when_needed() || connect_for_collectives(made) ? made : NULL;
}
bool connect_for_collectives(Buffers *buffers) {
  return buffers->collectives++ ? true : charge(buffers->device, collective_bytes(buffers), &buffers->bytes);
}
bool connect_to_peer(Buffers *buffers, int peer) {
  if (peer < 0 || peer >= buffers->ranks || peer == buffers->rank || buffers->is_connected[peer]) return true;
  buffers->is_connected[peer] = true;
  bool is_here = peer / buffers->local_ranks == buffers->rank / buffers->local_ranks;
  if (is_here) buffers->local_peers++;
  else if (buffers->remote_peers++) return true;
  return charge(buffers->device, is_here ? local_peer_bytes() : remote_peers_bytes(), &buffers->bytes);
}
void give_buffers_back(Buffers *buffers) {   // its figures stay; the kernels stay loaded
  if (!buffers || !buffers->is_open) return;
  Range3 *sum = &now[buffers->device];
  lock_card();
  buffers->is_open = false;
  Range3 bytes = buffers->bytes;
  sum->low -= bytes.low;
  sum->expected -= bytes.expected;
  sum->high -= bytes.high;
  unlock_card();
  give_outside_back(buffers->device, bytes.expected);
}

// The most that NCCL has taken of a device at once: low, expected, high.
EXPORT void dryfit_nccl_bytes(int device, size_t found[3]) {
  lock_card();
  Range3 top = is_a_device(device) ? highest[device] : (Range3){0};
  unlock_card();
  memcpy(found, &top, sizeof top);
}

// The i-th communicator that this process made; 0 past the last one.
EXPORT int dryfit_communicator(size_t i, size_t found[10]) {
  lock_card();
  const Buffers *at = all;
  while (at && i--) at = at->next;
  if (at) {
    size_t figures[] = {(size_t)at->ranks,  (size_t)at->rank, (size_t)at->nodes, (size_t)at->device,
                        at->collectives,    at->local_peers,  at->remote_peers,  at->bytes.low,
                        at->bytes.expected, at->bytes.high};
    memcpy(found, figures, sizeof figures);
  }
  unlock_card();
  return at != NULL;
}
