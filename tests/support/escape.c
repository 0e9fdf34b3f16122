/* Tries to reach beyond itself: each message names a way; the answer is "done", or why not. */
#define _GNU_SOURCE
#include "millstream_action.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long trace_a_child(void) {
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    long result = ptrace(PTRACE_ATTACH, child, NULL, NULL);
    int why = errno;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    errno = why;
    return result;
}

static long enter_network_of(const char *process) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/ns/net", process);
    int network = open(path, O_RDONLY);
    return network < 0 ? -1 : setns(network, CLONE_NEWNET);
}

static long clone_into(unsigned long flags) {
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    return child;
}

static long fork_often(long most) {
    long made = 0;
    while (made < most) {
        pid_t child = fork();
        if (child < 0) break;
        if (child == 0) {
            pause();
            _exit(0);
        }
        made++;
    }
    return made;
}

static long attempt(const char *way, const char *argument) {
    if (!strcmp(way, "ptrace")) return trace_a_child();
    if (!strcmp(way, "setns")) return enter_network_of(argument);
    if (!strcmp(way, "unshare")) return unshare(CLONE_NEWUSER);
    if (!strcmp(way, "clone")) return clone_into(CLONE_NEWUSER);
    if (!strcmp(way, "clone3")) return syscall(435, NULL, 0);
    if (!strcmp(way, "mount")) return mount("none", "/mnt", "tmpfs", 0, NULL);
    if (!strcmp(way, "chroot")) return chroot("/");
    if (!strcmp(way, "bpf")) return syscall(SYS_bpf, 0, NULL, 0);
    if (!strcmp(way, "kill")) return kill(atoi(argument), 0);
    errno = ENOTSUP;
    return -1;
}

int main(void) {
    const unsigned char *data;
    size_t size;
    while (ms_read_message(&data, &size)) {
        char text[200], way[100] = "", argument[100] = "";
        snprintf(text, sizeof text, "%.*s", (int)size, data);
        sscanf(text, "%99s %99s", way, argument);
        if (!strcmp(way, "fork")) {
            snprintf(text, sizeof text, "%ld", fork_often(atol(argument)));
            ms_write_message(text, strlen(text));
            continue;
        }
        errno = 0;
        const char *answer = attempt(way, argument) >= 0 ? "done" : strerror(errno);
        ms_write_message(answer, strlen(answer));
    }
    return 0;
}
