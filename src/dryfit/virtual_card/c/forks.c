// Forks of a process that is prepared to be the program, and of which each rehearsal is one. Torch marks a fork of a
// process that has asked for its cards as one that cannot use CUDA, for on a real card it cannot. On this card a fork
// has all that the process had, and may go on as that process would have. The forks that a program makes itself are
// marked, as they are on a real card.
#include "card.h"

#include <dlfcn.h>
#include <string.h>

typedef void Handler(void);
static Handler *marks[8];   // what torch has called in every fork: each sets a few flags
static int count;
static bool go_on;   // forks of this process, as the process itself

static bool is_of_torch(Handler *handler) {
  Dl_info found;
  return handler && dladdr((void *)handler, &found) && found.dli_fname && strstr(found.dli_fname, "libtorch_python.so");
}
static void mark(void) {
  for (int i = 0; i < count && !go_on; i++) marks[i]();
}

// What pthread_atfork, a static function of every library, calls in glibc.
EXPORT int __register_atfork(Handler *before, Handler *in_parent, Handler *in_child, void *library) {
  int (*real)(Handler *, Handler *, Handler *, void *) =
      (int (*)(Handler *, Handler *, Handler *, void *))dlsym(RTLD_NEXT, "__register_atfork");
  if (before || in_parent || count == sizeof marks / sizeof *marks || !is_of_torch(in_child))
    return real(before, in_parent, in_child, library);
  marks[count++] = in_child;
  return count == 1 ? real(NULL, NULL, mark, library) : OK;
}

EXPORT void dryfit_let_forks_go_on(int whether) { go_on = whether; }
