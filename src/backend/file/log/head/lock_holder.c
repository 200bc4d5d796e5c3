#include "backend/file/log/head/lock_holder.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct process_look { /* the kernel's information about a process */
    char name[32];            /* "" if it is not visible from here */
    char state;               /* R, S, D, T, ... */
} process_look;

static void look_at_process(int pid, process_look *look)
{
    char path[48], text[128] = "";

    *look = (process_look){0};
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    /* "12 (name) S ...": the name may have parentheses, and has at most 15 bytes. */
    const char *begin = got > 0 ? strchr(text, '(') : NULL,
               *end = got > 0 ? strrchr(text, ')') : NULL;
    if (begin == NULL || end == NULL || end[1] != ' ')
        return;
    snprintf(look->name, sizeof look->name, "%.*s", (int)(end - begin - 1), begin + 1);
    look->state = end[2];
}

static int is_stopped(const process_look *look)
{
    return look->state == 'T' || look->state == 't';
}

int ligi_process_stopped(int pid)
{
    process_look look;

    look_at_process(pid, &look);
    return is_stopped(&look);
}

void ligi_process_name(int pid, char *text, size_t bytes)
{
    process_look look;

    if (pid <= 0) {
        snprintf(text, bytes, "another process");
        return;
    }
    look_at_process(pid, &look);
    snprintf(text, bytes, look.name[0] ? "process %d (%s%s)" : "process %d", pid, look.name,
             is_stopped(&look) ? ", stopped" : "");
}
