// NCCL. A process alone (alone=1, as `--world N` makes it) is one rank of a world whose other ranks hold the same
// values and make the same calls; what comes of up to 1 MiB is there. Otherwise the other ranks are real processes on
// this host, and payloads up to 64 KiB pass between them, so that scripts agree with each other; larger ones are never
// looked at.
#include "card.h"
#include "nccl_buffers.h"
#include "ranks.h"
#include "reductions.h"
#include "traffic.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { UNHANDLED_CUDA_ERROR = 1, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6 };   // ncclResult_t
typedef struct {
  int ranks, rank, device, splits;
  uint64_t key;
  World *world;   // NULL: alone
  Buffers *buffers;
} Comm;
typedef struct {
  char bytes[128];
} UniqueId;   // passed by value

// ---- communicators --------------------------------------------------------------------------------------------------
static int card_is_full(void) {   // in NCCL's words
  fail("Cuda failure 2 'out of memory': NCCL found no room on the card for its own buffers.");
  return UNHANDLED_CUDA_ERROR;
}
static int join_on(int device, Comm **out, int ranks, int rank, uint64_t key) {
  Comm *comm = calloc(1, sizeof *comm);
  if (!comm) return SYSTEM_ERROR;
  *comm = (Comm){.ranks = ranks, .rank = rank, .device = device, .key = key};
  if (!(comm->buffers = buffers_of_communicator(ranks, rank, device))) {
    free(comm);
    return card_is_full();
  }
  bool alone = card()->alone || !key || ranks < 2;
  if (!alone && !(comm->world = meet(key, ranks, rank))) {
    give_buffers_back(comm->buffers);
    free(comm);
    return SYSTEM_ERROR;
  }
  *out = comm;
  return OK;
}
static int join(Comm **out, int ranks, int rank, uint64_t key) {
  return join_on(current_device(), out, ranks, rank, key);
}
static uint64_t key_of(const UniqueId *id) {
  uint64_t key;
  memcpy(&key, id, sizeof key);
  return key;
}
EXPORT int ncclGetUniqueId(UniqueId *id) {
  memset(id, 0, sizeof *id);
  return getrandom(id, sizeof(uint64_t), 0) == sizeof(uint64_t) ? OK : SYSTEM_ERROR;
}
EXPORT int ncclCommInitRank(Comm **comm, int ranks, UniqueId id, int rank) {
  return join(comm, ranks, rank, key_of(&id));
}
EXPORT int ncclCommInitRankConfig(Comm **comm, int ranks, UniqueId id, int rank, void *config) {
  return join(comm, ranks, rank, key_of(&id));
}
EXPORT int ncclCommInitRankScalable(Comm **comm, int ranks, int rank, int ids, const UniqueId *id, void *config) {
  return join(comm, ranks, rank, key_of(id));
}
EXPORT int ncclCommInitAll(Comm **comms, int count, const int *devices) {   // all ranks in this process
  for (int i = 0; i < count; i++) {
    int status = join_on(devices ? devices[i] : i, &comms[i], count, i, 0);
    if (status != OK) return status;
  }
  return OK;
}
EXPORT int ncclCommSplit(Comm *from, int color, int key, Comm **comm, void *config) {
  if (!from) return INVALID_ARGUMENT;
  int mine[2] = {color, key}, ranks = 0, rank = 0;
  const char *all = from->world ? exchange(from->world, mine, sizeof mine) : NULL;
  if (from->world && !all) return REMOTE_ERROR;
  from->splits++;
  *comm = NULL;
  if (color < 0) return OK;   // NCCL_SPLIT_NOCOLOR
  if (!all) return join(comm, from->ranks, from->rank, 0);
  for (int r = 0; r < from->ranks; r++) {
    int other[2];
    memcpy(other, all + (size_t)r * PAYLOAD, sizeof other);
    if (other[0] != color) continue;
    ranks++;
    rank += other[1] < key || (other[1] == key && r < from->rank);
  }
  uint64_t of_group = (from->key ^ ((uint64_t)(color + 1) << 40)) * 0x9E3779B97F4A7C15u + (uint64_t)from->splits;
  return join(comm, ranks, rank, of_group);
}
EXPORT int ncclCommDestroy(Comm *comm) {
  if (comm) {
    leave(comm->world);
    give_buffers_back(comm->buffers);
  }
  free(comm);
  return OK;
}
EXPORT int ncclCommAbort(Comm *comm) { return OK; }   // other threads may still be using it: it stays
EXPORT int ncclCommCount(const Comm *comm, int *count) {
  if (!comm) return INVALID_ARGUMENT;
  *count = comm->ranks;
  return OK;
}
EXPORT int ncclCommUserRank(const Comm *comm, int *rank) {
  if (!comm) return INVALID_ARGUMENT;
  *rank = comm->rank;
  return OK;
}
EXPORT int ncclCommCuDevice(const Comm *comm, int *device) {
  if (!comm) return INVALID_ARGUMENT;
  *device = comm->device;
  return OK;
}
EXPORT int ncclCommGetAsyncError(Comm *comm, int *error) {
  *error = OK;
  return OK;
}
static int no_elastic_worlds(const char *call) {
  fail("%s changes a running NCCL world, which the virtual card cannot do; start the program with its final ranks.",
       call);
  return INVALID_USAGE;
}
EXPORT int ncclCommShrink(Comm *from, int *excluded, int count, Comm **comm, void *config, int flags) {
  return no_elastic_worlds("ncclCommShrink");
}
EXPORT int ncclCommGrow(Comm *from, int ranks, const UniqueId *id, int rank, Comm **comm, void *config) {
  return no_elastic_worlds("ncclCommGrow");
}
EXPORT int ncclCommWindowRegister(Comm *comm, void *buffer, size_t bytes, void **window, int flags) {
  *window = new_handle();
  return OK;
}
EXPORT int ncclMemAlloc(void **out, size_t bytes) { return allocate(out, bytes, current_device()); }
EXPORT int ncclMemFree(void *p) { return release(p); }

EXPORT int ncclGetVersion(int *version) {
  int (*real)(int *) = (int (*)(int *))function_of("libnccl.so.2", "ncclGetVersion");
  if (!real || real == ncclGetVersion || real(version) != OK) *version = 22703;   // 2.27.3
  return OK;
}
EXPORT const char *ncclGetErrorString(int status) {
  switch (status) {
    case OK: return "no error";
    case SYSTEM_ERROR: return "the ranks did not meet";
    case REMOTE_ERROR: return "another rank did not come";
    default: return "invalid usage";
  }
}
EXPORT const char *ncclGetLastError(Comm *comm) { return last_failure(); }

// ---- what every rank brought to a collective call -------------------------------------------------------------------
typedef struct {
  const char *at;   // NULL: too much to pass, nobody knows
  size_t stride;    // 0: alone, and everybody brought the same
} Parts;
EXPORT bool dryfit_plays_alone(void) { return card()->alone; }
static bool senseless(const Comm *comm, int type) { return !comm || type < 0 || type >= TYPES; }
static int begin(Comm *comm, int type, Traffic kind, size_t n) {
  if (senseless(comm, type)) return INVALID_ARGUMENT;
  count_traffic(kind, n * type_bytes[type], comm->ranks, false);
  return connect_for_collectives(comm->buffers) ? OK : card_is_full();
}
static int gather_parts(Comm *comm, const void *mine, size_t bytes, Parts *parts) {
  *parts = (Parts){0};
  if (bytes > (comm->world ? PAYLOAD : SMALL_COPY)) return OK;
  if (!comm->world) {
    *parts = (Parts){mine, 0};
    return OK;
  }
  *parts = (Parts){exchange(comm->world, mine, bytes), PAYLOAD};
  return parts->at ? OK : REMOTE_ERROR;
}
static const char *part_of(const Parts *parts, int rank) { return parts->at + (size_t)rank * parts->stride; }

// ---- collective calls -----------------------------------------------------------------------------------------------
EXPORT int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, Comm *comm, void *stream) {
  Parts parts;
  int status = begin(comm, type, ALL_REDUCE, n);
  if (status == OK) status = gather_parts(comm, in, n * type_bytes[type], &parts);
  if (status != OK) return status;
  if (!parts.at) return copy_bytes(out, in, n * type_bytes[type]);
  reduce(parts.at, parts.stride, out, n, type, op, comm->ranks);
  return OK;
}
EXPORT int ncclReduce(const void *in, void *out, size_t n, int type, int op, int root, Comm *comm, void *stream) {
  Parts parts;
  int status = begin(comm, type, REDUCE, n);
  if (status == OK) status = gather_parts(comm, in, n * type_bytes[type], &parts);
  if (status != OK || comm->rank != root) return status;
  if (!parts.at) return copy_bytes(out, in, n * type_bytes[type]);
  reduce(parts.at, parts.stride, out, n, type, op, comm->ranks);
  return OK;
}
EXPORT int ncclReduceScatter(const void *in, void *out, size_t n, int type, int op, Comm *comm, void *stream) {
  Parts parts;
  int status = begin(comm, type, REDUCE_SCATTER, n);
  if (status == OK) status = gather_parts(comm, in, (size_t)comm->ranks * n * type_bytes[type], &parts);
  if (status != OK) return status;
  size_t mine = (size_t)comm->rank * n * type_bytes[type];
  if (!parts.at) return copy_bytes(out, (const char *)in + mine, n * type_bytes[type]);
  reduce(parts.at + mine, parts.stride, out, n, type, op, comm->ranks);
  return OK;
}
static int gather(const void *in, char *out, size_t bytes, Comm *comm, bool wanted) {
  Parts parts;
  int status = gather_parts(comm, in, bytes, &parts);
  if (status != OK || !wanted || !parts.at) return status;
  if (!comm->world && bytes > SMALL_COPY / (size_t)comm->ranks) return OK;   // of what is larger nobody knows all
  for (int r = 0; r < comm->ranks; r++) copy_bytes(out + (size_t)r * bytes, part_of(&parts, r), bytes);
  return OK;
}
EXPORT int ncclAllGather(const void *in, char *out, size_t n, int type, Comm *comm, void *stream) {
  int status = begin(comm, type, ALL_GATHER, n);
  return status != OK ? status : gather(in, out, n * type_bytes[type], comm, true);
}
EXPORT int ncclGather(const void *in, char *out, size_t n, int type, int root, Comm *comm, void *stream) {
  if (senseless(comm, type)) return INVALID_ARGUMENT;
  count_traffic(GATHER, n * type_bytes[type], comm->ranks, comm->rank == root);
  for (int peer = 0; peer < comm->ranks; peer++)   // NCCL sends and receives, one by one
    if ((comm->rank == root || peer == root) && !connect_to_peer(comm->buffers, peer)) return card_is_full();
  return gather(in, out, n * type_bytes[type], comm, comm->rank == root);
}
EXPORT int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, Comm *comm, void *stream) {
  Parts parts;
  int status = begin(comm, type, BROADCAST, n);
  if (status == OK) status = gather_parts(comm, comm->rank == root ? in : out, n * type_bytes[type], &parts);
  if (status != OK) return status;
  if (comm->world && parts.at) return copy_bytes(out, part_of(&parts, root), n * type_bytes[type]);
  return copy_bytes(out, comm->rank == root ? in : out, n * type_bytes[type]);
}
EXPORT int ncclBcast(void *data, size_t n, int type, int root, Comm *comm, void *stream) {
  return ncclBroadcast(data, data, n, type, root, comm, stream);
}

// ---- point to point: a group's sends and receipts all happen at its end, in whatever order they can -----------------
typedef struct {
  bool sends, done;
  void *buffer;
  size_t bytes;
  int peer;
  Comm *comm;
} Transfer;
static _Thread_local struct {
  Transfer *at;
  int count, room, depth;
} group;

static int add_transfer(Transfer transfer) {
  if (!connect_to_peer(transfer.comm->buffers, transfer.peer)) return card_is_full();
  if (group.count == group.room) {
    int room = group.room ? 2 * group.room : 64;
    Transfer *at = realloc(group.at, sizeof *at * (size_t)room);
    if (!at) return SYSTEM_ERROR;
    group.at = at;
    group.room = room;
  }
  group.at[group.count++] = transfer;
  return OK;
}

// Alone: the peers make the same calls, so what one sends to this rank is what this rank sends to itself; or, where it
// sends itself nothing, as in a ring, what it sends as far to the other side. A neighbour whose data would differ, such
// as a pipeline's, is not there.
static const Transfer *sent_alone(const Transfer *to, int peer) {
  for (int i = 0; i < group.count; i++) {
    const Transfer *from = &group.at[i];
    if (from->sends && from->comm == to->comm && from->peer == peer && from->bytes == to->bytes) return from;
  }
  return NULL;
}
static void receive_alone(const Transfer *to) {
  int ranks = to->comm->ranks, own = to->comm->rank;
  const Transfer *from = sent_alone(to, own);
  if (!from) from = sent_alone(to, (2 * own - to->peer + ranks) % ranks);
  if (from) {
    copy_bytes(to->buffer, from->buffer, to->bytes);
    return;
  }
  UNFAITHFUL("ncclRecv");
  fill_bytes(to->buffer, 0, to->bytes);
}
static bool waits_for_earlier(int index) {   // messages between two ranks keep their order
  Transfer *it = &group.at[index];
  for (int i = 0; i < index; i++) {
    Transfer *other = &group.at[i];
    if (!other->done && other->sends == it->sends && other->comm == it->comm && other->peer == it->peer) return true;
  }
  return false;
}
static bool attempt(Transfer *it) {   // whether it is done
  World *world = it->comm->world;
  if (!world && !it->sends) receive_alone(it);
  if (!world || it->bytes > PAYLOAD) return true;
  return it->sends ? try_post(world, it->peer, it->buffer, it->bytes)
                   : try_collect(world, it->peer, it->buffer, it->bytes);
}
static int run_group(void) {
  for (Patience patience = {0};;) {
    Transfer *first_left = NULL;
    for (int i = 0; i < group.count; i++) {
      Transfer *it = &group.at[i];
      if (it->done) continue;
      it->done = !waits_for_earlier(i) && attempt(it);
      if (it->done) patience = (Patience){0};
      else if (!first_left) first_left = it;
    }
    if (!first_left) return OK;
    if (!keep_waiting(&patience, first_left->comm->world, first_left->peer)) return REMOTE_ERROR;
  }
}
EXPORT int ncclGroupStart(void) {
  group.depth++;
  return OK;
}
EXPORT int ncclGroupEnd(void) {
  if (--group.depth > 0) return OK;
  group.depth = 0;
  int status = run_group();
  group.count = 0;
  return status;
}
static int transfer(bool sends, void *buffer, size_t bytes, int peer, Comm *comm) {
  ncclGroupStart();
  int status = add_transfer((Transfer){.sends = sends, .buffer = buffer, .bytes = bytes, .peer = peer, .comm = comm});
  int ended = ncclGroupEnd();
  return status != OK ? status : ended;
}
EXPORT int ncclSend(const void *in, size_t n, int type, int peer, Comm *comm, void *stream) {
  if (senseless(comm, type)) return INVALID_ARGUMENT;
  count_traffic(SEND, n * type_bytes[type], peer == comm->rank ? 1 : comm->ranks, false);
  return transfer(true, (void *)(uintptr_t)in, n * type_bytes[type], peer, comm);
}
EXPORT int ncclRecv(void *out, size_t n, int type, int peer, Comm *comm, void *stream) {
  if (senseless(comm, type)) return INVALID_ARGUMENT;
  count_traffic(RECEIVE, n * type_bytes[type], peer == comm->rank ? 1 : comm->ranks, false);
  return transfer(false, out, n * type_bytes[type], peer, comm);
}
static int add_parts(bool sends, void *buffer, size_t bytes, Comm *comm) {   // one after the other, one for each rank
  int status = OK;
  for (int r = 0; r < comm->ranks && status == OK; r++)
    status = add_transfer((Transfer){
        .sends = sends, .buffer = (char *)buffer + (size_t)r * bytes, .bytes = bytes, .peer = r, .comm = comm});
  return status;
}
EXPORT int ncclAlltoAll(const void *in, void *out, size_t n, int type, Comm *comm, void *stream) {
  if (senseless(comm, type)) return INVALID_ARGUMENT;
  size_t bytes = n * type_bytes[type];
  count_traffic(ALL_TO_ALL, bytes, comm->ranks, false);
  ncclGroupStart();
  int sent = add_parts(true, (void *)(uintptr_t)in, bytes, comm), received = add_parts(false, out, bytes, comm);
  int ended = ncclGroupEnd();
  return sent != OK ? sent : received != OK ? received : ended;
}
EXPORT int ncclScatter(const void *in, void *out, size_t n, int type, int root, Comm *comm, void *stream) {
  if (senseless(comm, type)) return INVALID_ARGUMENT;
  size_t bytes = n * type_bytes[type];
  count_traffic(SCATTER, bytes, comm->ranks, comm->rank == root);
  ncclGroupStart();
  int sent = comm->rank == root ? add_parts(true, (void *)(uintptr_t)in, bytes, comm) : OK;
  int received = transfer(false, out, bytes, root, comm), ended = ncclGroupEnd();
  return sent != OK ? sent : received != OK ? received : ended;
}
