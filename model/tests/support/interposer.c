// A library that replaces functions of the C library, as libvma and similar libraries do. It passes
// every call on, but ends the process with status 99 and a line if the call is one of the model's own.
//
// INTERPOSER_PLACE says where it is preloaded: "before" the model, or "after" it. Before, no call from
// the model's code may arrive here. After, the model passes on the calls of the program, so only calls
// of the model's threads are its own.

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

// Not by their headers, which declare functions that are replaced below.
extern char *getenv(const char *);
extern long syscall(long, ...);

static int is_of_the_model(void *caller) {
    Dl_info info;
    if (!dladdr(caller, &info) || !info.dli_fname || !strstr(info.dli_fname, "libmlx5_model"))
        return 0;
    const char *place = getenv("INTERPOSER_PLACE");
    if (!place || strcmp(place, "after"))
        return 1;
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    return !strcmp(name, "mlx5-model");
}

static void look(void *caller, const char *name) {
    static const char before[] = "interposer: the model has called ";
    if (!is_of_the_model(caller))
        return;
    syscall(SYS_write, 2, before, sizeof before - 1);
    syscall(SYS_write, 2, name, strlen(name));
    syscall(SYS_write, 2, "\n", 1);
    syscall(SYS_exit_group, 99);
}

typedef long (*call)(long, long, long, long, long, long);

#define PASS(name)                                                                            \
    long name(long a, long b, long c, long d, long e, long f) {                               \
        static call next;                                                                     \
        look(__builtin_return_address(0), #name);                                             \
        if (!next)                                                                            \
            next = (call)dlsym(RTLD_NEXT, #name);                                             \
        return next(a, b, c, d, e, f);                                                        \
    }

PASS(socket)
PASS(socketpair)
PASS(bind)
PASS(listen)
PASS(connect)
PASS(accept)
PASS(accept4)
PASS(shutdown)
PASS(getsockname)
PASS(getpeername)
PASS(getsockopt)
PASS(setsockopt)
PASS(send)
PASS(sendto)
PASS(sendmsg)
PASS(sendmmsg)
PASS(recv)
PASS(recvfrom)
PASS(recvmsg)
PASS(recvmmsg)
PASS(read)
PASS(readv)
PASS(write)
PASS(close)
PASS(poll)
PASS(ppoll)
PASS(select)
PASS(epoll_create)
PASS(epoll_create1)
PASS(epoll_ctl)
PASS(epoll_wait)
PASS(epoll_pwait)
PASS(eventfd)
PASS(timerfd_create)
PASS(timerfd_settime)
PASS(memfd_create)
PASS(ftruncate)
PASS(fcntl)
PASS(fcntl64)
PASS(ioctl)
PASS(dup)
PASS(dup2)
PASS(dup3)
PASS(pipe)
PASS(open)
PASS(open64)
PASS(openat)
PASS(openat64)
PASS(fstat)
PASS(stat)
PASS(lstat)
PASS(opendir)
PASS(readlink)
PASS(realpath)
PASS(rename)
PASS(mkdir)
PASS(symlink)
PASS(unlink)
PASS(rmdir)
PASS(flock)
PASS(mmap)
PASS(mremap)
PASS(madvise)
PASS(sigprocmask)
PASS(pthread_sigmask)
PASS(geteuid)
PASS(getuid)
PASS(prlimit)
PASS(sched_setscheduler)
PASS(setpriority)
