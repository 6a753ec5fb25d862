// Real ranks on one host. They meet at a socket without a file (Linux's abstract names), where rank 0 hands each of
// them the same piece of anonymous shared memory: whoever crashes, nothing stays behind. No wait is for ever: it ends
// when the other process has ended, or after `wait_seconds`, and says which rank did not come.
#include "card.h"
#include "ranks.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BOX_SLOTS 4   // messages on their way from one rank to another

typedef struct {
  _Atomic long turn;   // exchanges this rank has posted for
  _Atomic int pid;
  _Atomic int rank_of_all;   // its rank in the program's world, from 1; 0: it has not said
} Seat;
typedef struct {
  _Atomic long posted, collected;
  char slot[BOX_SLOTS][PAYLOAD];
} Box;
struct World {
  int ranks, rank;
  long turn;
  size_t bytes;
  void *memory;
  Seat *seats;
  char *slots;   // [2][ranks][PAYLOAD]: a rank may post for the next exchange while another still reads this one
  Box *boxes;    // [from][to]
};

// ---- words for a wait that failed -----------------------------------------------------------------------------------
// A communicator numbers its ranks anew; people know them by the numbers that the launcher gave.
static _Atomic int rank_of_all;
EXPORT void dryfit_is_rank(int rank) { atomic_store(&rank_of_all, rank + 1); }
static int number_of(const World *world, int rank) {
  int of_all = atomic_load(&world->seats[rank].rank_of_all);
  return of_all > 0 ? of_all - 1 : rank;
}

static _Thread_local char failure[400];
const char *last_failure(void) { return failure; }
void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(failure, sizeof failure, format, arguments);
  va_end(arguments);
  fprintf(stderr, "dryfit: %s\n", failure);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
static void nap(long microseconds) { nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL); }
static bool has_ended(const World *world, int rank) {   // also where its parent has not yet asked for its exit status
  int pid = atomic_load(&world->seats[rank].pid);
  if (pid <= 0) return false;
#ifdef SYS_pidfd_open
  int process = (int)syscall(SYS_pidfd_open, pid, 0);
  if (process >= 0) {
    struct pollfd end = {.fd = process, .events = POLLIN};
    bool ended = poll(&end, 1, 0) > 0;
    close(process);
    return ended;
  }
#endif
  return kill(pid, 0) && errno == ESRCH;
}

bool keep_waiting(Patience *patience, const World *world, int peer) {
  if (patience->turns++ < 200) {
    sched_yield();
    return true;
  }
  double time = now();
  if (patience->began == 0) patience->began = patience->checked = time;
  nap(patience->turns < 2000 ? 50 : 1000);
  if (time - patience->checked < 0.1) return true;
  patience->checked = time;
  if (patience->ended) {
    fail("rank %d waits for rank %d, whose process has ended; look at that rank's output for the reason.",
         number_of(world, world->rank), number_of(world, peer));
    return false;
  }
  patience->ended = has_ended(world, peer);
  if (time - patience->began > card()->wait_seconds) {
    fail(
        "rank %d has waited %d seconds for rank %d to take part in a collective call. Either the ranks make different "
        "calls, or that rank is busy: then raise wait_seconds in DRYFIT_VIRTUAL_CARD.",
        number_of(world, world->rank), card()->wait_seconds, number_of(world, peer));
    return false;
  }
  return true;
}

// ---- meeting --------------------------------------------------------------------------------------------------------
static socklen_t address_of(uint64_t key, struct sockaddr_un *address) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};   // a name that begins with a zero byte has no file
  int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "dryfit-%016llx", (unsigned long long)key);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool send_memory(int to, int memory) {
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {0};
  char byte = 0;
  struct iovec data = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  struct cmsghdr *part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof memory);
  memcpy(CMSG_DATA(part), &memory, sizeof memory);
  return sendmsg(to, &message, MSG_NOSIGNAL) == 1;
}
static int receive_memory(int from) {
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {0};
  char byte;
  struct iovec data = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t n;
  do n = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n != 1) return -1;
  struct cmsghdr *part = CMSG_FIRSTHDR(&message);
  int memory = -1;
  if (part && part->cmsg_type == SCM_RIGHTS) memcpy(&memory, CMSG_DATA(part), sizeof memory);
  return memory;
}
static bool same_user(int peer) {
  struct ucred who;
  socklen_t n = sizeof who;
  return !getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &n) && who.uid == getuid();
}
static bool readable(int descriptor, double until) {
  struct pollfd wanted = {.fd = descriptor, .events = POLLIN};
  for (double left; (left = until - now()) > 0;) {
    int found = poll(&wanted, 1, (int)(left * 1000) + 1);
    if (found >= 0 || errno != EINTR) return found > 0;   // a signal's handler ran: poll never restarts by itself
  }
  return false;
}

static int receive_rank(int guest) {   // whoever connects and says nothing must not keep the others waiting
  int rank;   // sent in one piece, it comes in one
  bool came = readable(guest, now() + 5) && recv(guest, &rank, sizeof rank, MSG_DONTWAIT) == sizeof rank;
  return came ? rank : -1;
}

static void say_who_is_missing(const int *guests, int ranks) {
  char missing[160] = "";
  size_t length = 0;
  for (int r = 1; r < ranks && length < sizeof missing - 16; r++)
    if (guests[r] < 0)
      length += (size_t)snprintf(missing + length, sizeof missing - length, "%s%d", length ? ", " : "", r);
  fail(
      "rank 0 of %d has waited %d seconds for the other ranks of an NCCL communicator; missing: %s. Every rank has to "
      "run on this host. One process that plays its rank alone needs alone=1 in DRYFIT_VIRTUAL_CARD.",
      ranks, card()->wait_seconds, missing);
}

// Rank 0 waits for all others, and then gives each the memory.
static int host_meeting(uint64_t key, int ranks, size_t bytes) {
  struct sockaddr_un address;
  socklen_t length = address_of(key, &address);
  int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), memory = -1, here = 1;
  int *guests = malloc(sizeof(int) * (size_t)ranks);
  double until = now() + card()->wait_seconds;
  bool ready = guests && door >= 0 && !bind(door, (struct sockaddr *)&address, length) && !listen(door, ranks);
  if (guests)
    for (int r = 0; r < ranks; r++) guests[r] = -1;
  while (ready && here < ranks && readable(door, until)) {
    int guest = accept4(door, NULL, NULL, SOCK_CLOEXEC);
    if (guest < 0) {
      nap(2000);   // no descriptor is left, say: the guest stays at the door
      continue;
    }
    int rank = same_user(guest) ? receive_rank(guest) : -1;
    bool known = rank > 0 && rank < ranks && guests[rank] < 0;
    if (known) guests[rank] = guest, here++;
    else close(guest);
  }
  if (!ready) fail("rank 0 of %d could not open a meeting place for an NCCL communicator: %s.", ranks, strerror(errno));
  else if (here < ranks) say_who_is_missing(guests, ranks);
  else if ((memory = memfd_create("dryfit ranks", MFD_CLOEXEC)) < 0 || ftruncate(memory, (off_t)bytes))
    fail("rank 0 of %d got no shared memory for an NCCL communicator: %s.", ranks, strerror(errno));
  else
    for (int r = 1; r < ranks; r++) send_memory(guests[r], memory);
  for (int r = 1; guests && r < ranks; r++)
    if (guests[r] >= 0) close(guests[r]);
  if (door >= 0) close(door);
  free(guests);
  return memory;
}
static int join_meeting(uint64_t key, int ranks, int rank) {
  struct sockaddr_un address;
  socklen_t length = address_of(key, &address);
  double until = now() + card()->wait_seconds;
  int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), memory = -1;
  while (connect(door, (struct sockaddr *)&address, length)) {   // rank 0 may come later
    if (now() > until) {
      fail(
          "rank %d of %d has waited %d seconds for rank 0 of an NCCL communicator. Every rank has to run on this host. "
          "One process that plays its rank alone needs alone=1 in DRYFIT_VIRTUAL_CARD.",
          rank, ranks, card()->wait_seconds);
      close(door);
      return -1;
    }
    nap(2000);
  }
  bool answered = same_user(door) && send(door, &rank, sizeof rank, MSG_NOSIGNAL) == sizeof rank &&
                  readable(door, until + 5);
  if (answered) memory = receive_memory(door);
  if (memory < 0)
    fail(
        "rank %d of %d joined an NCCL communicator that rank 0 then gave up or left; look at rank 0's output for the "
        "reason.",
        rank, ranks);
  close(door);
  return memory;
}

World *meet(uint64_t key, int ranks, int rank) {
  size_t n = (size_t)ranks, seats = ROUND_UP(n * sizeof(Seat), HOST_PAGE), slots = 2 * n * PAYLOAD;
  size_t bytes = seats + slots + n * n * sizeof(Box);   // sparse: only what is passed takes memory
  int memory = rank == 0 ? host_meeting(key, ranks, bytes) : join_meeting(key, ranks, rank);
  if (memory < 0) return NULL;
  char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory, 0);
  close(memory);
  World *world = malloc(sizeof *world);
  if (p == MAP_FAILED || !world) {
    fail("rank %d of %d could not map the memory it shares with the others: %s.", rank, ranks, strerror(errno));
    free(world);
    return NULL;
  }
  *world = (World){.ranks = ranks,
                   .rank = rank,
                   .bytes = bytes,
                   .memory = p,
                   .seats = (Seat *)p,
                   .slots = p + seats,
                   .boxes = (Box *)(p + seats + slots)};
  atomic_store(&world->seats[rank].rank_of_all, atomic_load(&rank_of_all));
  atomic_store(&world->seats[rank].pid, (int)getpid());
  return world;
}
void leave(World *world) {
  if (!world) return;
  munmap(world->memory, world->bytes);
  free(world);
}

// ---- passing --------------------------------------------------------------------------------------------------------
const char *exchange(World *world, const void *mine, size_t n) {
  if (n > PAYLOAD) return NULL;
  long turn = ++world->turn;
  char *slots = world->slots + (size_t)(turn & 1) * (size_t)world->ranks * PAYLOAD;
  if (n) memcpy(slots + (size_t)world->rank * PAYLOAD, mine, n);
  atomic_store(&world->seats[world->rank].turn, turn);
  for (int r = 0; r < world->ranks; r++) {
    Patience patience = {0};
    while (atomic_load(&world->seats[r].turn) < turn)
      if (!keep_waiting(&patience, world, r)) return NULL;
  }
  return slots;
}

bool try_post(World *world, int peer, const void *from, size_t n) {
  Box *box = &world->boxes[world->rank * world->ranks + peer];
  long posted = atomic_load(&box->posted);
  if (posted - atomic_load(&box->collected) >= BOX_SLOTS) return false;
  memcpy(box->slot[posted % BOX_SLOTS], from, n);
  atomic_store(&box->posted, posted + 1);
  return true;
}
bool try_collect(World *world, int peer, void *to, size_t n) {
  Box *box = &world->boxes[peer * world->ranks + world->rank];
  long collected = atomic_load(&box->collected);
  if (atomic_load(&box->posted) == collected) return false;
  memcpy(to, box->slot[collected % BOX_SLOTS], n);
  atomic_store(&box->collected, collected + 1);
  return true;
}
