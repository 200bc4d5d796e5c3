/* A process of its own that answers commands: the same program, run anew with the arguments "peer
 * FD". Each command and each answer is one message. Every wait ends. */
#ifndef PEER_H
#define PEER_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PEER_TEXT_BYTES = 4096, PEER_WAIT_MS = 60000 };

typedef struct peer {
    pid_t process; /* 0: none */
    int fd;
    char answer[PEER_TEXT_BYTES];
} peer;

/* 0, or -1 with errno. */
static inline int peer_start(peer *self)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return -1;
    *self = (peer){.fd = ends[0], .process = fork()};
    if (self->process == 0) {
        char number[16], program[] = "/proc/self/exe", role[] = "peer";
        char *arguments[] = {program, role, number, NULL};
        sigset_t none;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        int fd = fcntl(ends[1], F_DUPFD, 3); /* without close-on-exec */
        snprintf(number, sizeof number, "%d", fd);
        execv(program, arguments);
        _exit(127);
    }
    close(ends[1]);
    return self->process > 0 ? 0 : -1;
}

static inline void peer_tell(peer *self, const char *format, va_list values)
{
    char text[PEER_TEXT_BYTES];
    int used = vsnprintf(text, sizeof text, format, values);
    if (send(self->fd, text, (size_t)used + 1, MSG_NOSIGNAL) < 0)
        snprintf(self->answer, sizeof self->answer, "error: not sent: %s", strerror(errno));
}

__attribute__((format(printf, 2, 3))) static inline void peer_send(peer *self, const char *format,
                                                                   ...)
{
    va_list values;
    va_start(values, format);
    peer_tell(self, format, values);
    va_end(values);
}

/* What it says next; an "error: ..." when it is gone, or says nothing in time. */
static inline const char *peer_hear(peer *self)
{
    struct pollfd ready = {.fd = self->fd, .events = POLLIN};
    int there;
    do
        there = poll(&ready, 1, PEER_WAIT_MS);
    while (there < 0 && errno == EINTR);
    ssize_t bytes = there > 0 ? recv(self->fd, self->answer, sizeof self->answer, 0) : -1;
    if (bytes <= 0)
        snprintf(self->answer, sizeof self->answer, "error: %s",
                 there > 0 ? "the process is gone" : "no answer");
    return self->answer;
}

__attribute__((format(printf, 2, 3))) static inline const char *peer_ask(peer *self,
                                                                         const char *format, ...)
{
    va_list values;
    va_start(values, format);
    peer_tell(self, format, values);
    va_end(values);
    return peer_hear(self);
}

/* For a process that is not traced. */
static inline void peer_kill(peer *self)
{
    if (self->process > 0) {
        kill(self->process, SIGKILL);
        waitpid(self->process, NULL, 0);
        close(self->fd);
    }
    self->process = 0;
}

/* It exits when its parent has gone: 0 if it exited without an error. */
static inline int peer_stop(peer *self)
{
    int status = 0;
    if (self->process > 0) {
        close(self->fd);
        waitpid(self->process, &status, 0);
    }
    self->process = 0;
    return status;
}

/* The other side: answers until the asker is gone. `act` writes the answer. */
static inline void peer_serve(int fd, void (*act)(void *context, char *command, char *answer),
                              void *context)
{
    char command[PEER_TEXT_BYTES], answer[PEER_TEXT_BYTES];
    while (recv(fd, command, sizeof command, 0) > 0) {
        snprintf(answer, sizeof answer, "ok");
        act(context, command, answer);
        if (send(fd, answer, strlen(answer) + 1, MSG_NOSIGNAL) < 0)
            return;
    }
}

#endif
