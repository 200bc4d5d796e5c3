#include "backend/file/leases/lease.h"

#include "backend/file/entry.h"
#include "backend/file/file.h"
#include "backend/file/folder.h"
#include "backend/file/names.h"
#include "backend/file/packs/engine.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEASE_FILE LIGI_NAME_WRITER
#define BREAK_FILE LIGI_NAME_WRITER_BREAK
#define TEXT_BYTES 512

typedef struct identity {                /* who holds a lease; one line each in the file */
    char host[128], boot[64], space[64]; /* space: of process numbers */
    long pid;
    unsigned long long started; /* tells a process from a later one with its number */
    char token[20];
} identity;

struct ligi_lease {
    int folder_fd;
    char *place;
    char text[TEXT_BYTES];
    int64_t lease_s;
    pthread_t thread;
    int has_thread;

    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t changed;
    int stop;
};

static void read_line(const char *path, char *line, size_t line_bytes)
{
    line[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t got = read(fd, line, line_bytes - 1);
    close(fd);
    line[got > 0 ? got : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
}

/* When the process started, in ticks since the machine did; 0 when there is no such process. */
static unsigned long long start_of(long pid)
{
    char path[64], line[1024];

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    read_line(path, line, sizeof line);
    const char *field = strrchr(line, ')'); /* the name before it may hold anything */
    for (int i = 0; field != NULL && i < 20; i++)
        field = strchr(field + 1, ' ');
    return field == NULL ? 0 : strtoull(field + 1, NULL, 10);
}

static void identify(identity *self)
{
    memset(self, 0, sizeof *self);
    if (gethostname(self->host, sizeof self->host - 1) != 0 || self->host[0] == '\0')
        snprintf(self->host, sizeof self->host, "unknown");
    read_line("/proc/sys/kernel/random/boot_id", self->boot, sizeof self->boot);
    ssize_t got = readlink("/proc/self/ns/pid", self->space, sizeof self->space - 1);
    self->space[got > 0 ? got : 0] = '\0';
    self->pid = (long)getpid();
    self->started = start_of(self->pid);
    snprintf(self->token, sizeof self->token, "%016" PRIx64, ligi_folder_random_id());
}

static void identity_write(const identity *self, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "host %s\nboot %s\nspace %s\npid %ld\nstarted %llu\ntoken %s\n",
             self->host, self->boot, self->space, self->pid, self->started, self->token);
}

static int identity_read(identity *self, const char *text)
{
    memset(self, 0, sizeof *self);
    return sscanf(
               text,
               "host %127[^\n]\nboot %63[^\n]\nspace %63[^\n]\npid %ld\nstarted %llu\ntoken %19s",
               self->host, self->boot, self->space, &self->pid, &self->started, self->token) == 6;
}

/* Fills the text of the lease file and its heartbeat; LIG_E_NOTFOUND without a sentence when there
 * is none. */
static lig_status read_lease(int folder_fd, const char *place, const char *name, char *text,
                             int64_t *beat_ns)
{
    struct stat info;
    int fd;

    text[0] = '\0';
    LIG_TRY(ligi_entry_open(folder_fd, folder_fd, place, name, O_RDONLY, &fd));
    ssize_t got = pread(fd, text, TEXT_BYTES - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    lig_status status = fstat(fd, &info) == 0
                            ? LIG_OK
                            : ligi_fail_errno(errno, "%s/%s cannot be looked at", place, name);
    close(fd);
    if (status == LIG_OK)
        *beat_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    return status;
}

static int is_dead(const identity *holder, const identity *self)
{
    int same_machine = strcmp(holder->host, self->host) == 0 &&
                       strcmp(holder->boot, self->boot) == 0 &&
                       strcmp(holder->space, self->space) == 0 && self->started != 0;
    if (!same_machine)
        return 0;
    /* /proc may hide the processes of others: not seen is not dead. */
    unsigned long long started = start_of(holder->pid);
    if (started == 0)
        return kill((pid_t)holder->pid, 0) != 0 && errno == ESRCH;
    return started != holder->started;
}

typedef struct attempt {
    int folder_fd;
    const char *place;
    int64_t lease_s;
    identity self;
    char text[TEXT_BYTES];
    char candidate[48]; /* our lease under a name of its own, to be linked */
    int64_t now_ns;     /* the server's, read off the candidate */
} attempt;

static lig_status make_candidate(attempt *self)
{
    struct stat info;

    identify(&self->self);
    identity_write(&self->self, self->text, sizeof self->text);
    snprintf(self->candidate, sizeof self->candidate, LEASE_FILE ".%s", self->self.token);
    int fd =
        openat(self->folder_fd, self->candidate, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return ligi_fail_errno(errno, "%s: the right to write cannot be noted", self->place);
    lig_status status = ligi_write_all(fd, self->text, strlen(self->text), 0);
    if (status == LIG_OK && (fsync(fd) != 0 || fstat(fd, &info) != 0))
        status = ligi_fail_errno(errno, "%s: the right to write cannot be noted", self->place);
    close(fd);
    if (status != LIG_OK)
        unlinkat(self->folder_fd, self->candidate, 0);
    else
        self->now_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    return status;
}

static int is_stale(const attempt *self, const char *text, int64_t beat_ns)
{
    identity holder;

    if (self->now_ns - beat_ns > self->lease_s * 1000000000)
        return 1;
    return identity_read(&holder, text) && is_dead(&holder, &self->self);
}

static lig_status busy(const char *place, const char *text)
{
    identity holder;

    if (!identity_read(&holder, text))
        return lig_fail(LIG_E_BUSY, "%s is on a network file system and has a writer already",
                        place);
    return lig_fail(LIG_E_BUSY,
                    "%s is on a network file system and process %ld on %s writes to it: read with "
                    "mode=r, or share the "
                    "store by `ligament serve` there",
                    place, holder.pid, holder.host);
}

/* Replaces a dead holder's lease. BREAK_FILE makes this the work of one: without it the second of
 * two could remove the lease that the first has just made. */
static lig_status replace(attempt *self, const char *dead_text)
{
    char text[TEXT_BYTES];
    int64_t beat_ns;

    if (linkat(self->folder_fd, self->candidate, self->folder_fd, BREAK_FILE, 0) != 0) {
        lig_status read = read_lease(self->folder_fd, self->place, BREAK_FILE, text, &beat_ns);
        if (read != LIG_OK && read != LIG_E_NOTFOUND)
            return read;
        if (read == LIG_OK && is_stale(self, text, beat_ns))
            unlinkat(self->folder_fd, BREAK_FILE, 0);
        return lig_fail(LIG_E_BUSY, "%s: another process takes over from a dead writer; try again",
                        self->place);
    }
    lig_status status = LIG_OK;
    if (read_lease(self->folder_fd, self->place, LEASE_FILE, text, &beat_ns) == LIG_OK &&
        strcmp(text, dead_text) == 0)
        unlinkat(self->folder_fd, LEASE_FILE, 0);
    if (linkat(self->folder_fd, self->candidate, self->folder_fd, LEASE_FILE, 0) != 0)
        status = errno == EEXIST ? busy(self->place, text)
                                 : ligi_fail_errno(errno, "%s: the right to write cannot be noted",
                                                   self->place);
    unlinkat(self->folder_fd, BREAK_FILE, 0);
    return status;
}

static lig_status try_take(attempt *self)
{
    char text[TEXT_BYTES];
    int64_t beat_ns;

    for (int i = 0; i < 10; i++) {
        if (linkat(self->folder_fd, self->candidate, self->folder_fd, LEASE_FILE, 0) == 0)
            return LIG_OK;
        if (errno != EEXIST)
            return ligi_fail_errno(errno, "%s: the right to write cannot be noted", self->place);
        lig_status status = read_lease(self->folder_fd, self->place, LEASE_FILE, text, &beat_ns);
        if (status == LIG_E_NOTFOUND)
            continue;
        LIG_TRY(status);
        if (!is_stale(self, text, beat_ns))
            return busy(self->place, text);
        return replace(self, text);
    }
    return lig_fail(LIG_E_BUSY, "%s: writers come and go; try again", self->place);
}

static void *renew(void *opaque)
{
    ligi_lease *self = opaque;
    int64_t period_ns = self->lease_s * 1000000000 / 3;

    pthread_mutex_lock(&self->lock);
    while (!self->stop) {
        struct timespec deadline = ligi_deadline(period_ns);
        if (pthread_cond_timedwait(&self->changed, &self->lock, &deadline) != ETIMEDOUT ||
            self->stop)
            continue;
        char text[TEXT_BYTES];
        int64_t beat_ns;
        /* A lease that has gone to another is not ours to renew; the next write will say so. */
        if (read_lease(self->folder_fd, self->place, LEASE_FILE, text, &beat_ns) == LIG_OK &&
            strcmp(text, self->text) == 0 &&
            utimensat(self->folder_fd, LEASE_FILE, NULL, AT_SYMLINK_NOFOLLOW) != 0)
            ligi_log(LIG_LOG_WARNING, "%s: the right to write cannot be renewed: %s", self->place,
                     strerror(errno));
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

static lig_status start_thread(ligi_lease *self)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int number = pthread_create(&self->thread, NULL, renew, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (number != 0)
        return ligi_fail_errno(number, "%s: no thread to renew the right to write", self->place);
    self->has_thread = 1;
    return LIG_OK;
}

static lig_status lease_create(const attempt *won, ligi_lease **lease)
{
    pthread_condattr_t attributes;
    ligi_lease *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a lease"));
    memcpy(made->text, won->text, sizeof made->text);
    made->lease_s = won->lease_s;
    pthread_mutex_init(&made->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&made->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    made->folder_fd = fcntl(won->folder_fd, F_DUPFD_CLOEXEC, 0);
    lig_status status = ligi_strdup(&made->place, won->place);
    if (status == LIG_OK && made->folder_fd < 0)
        status = ligi_fail_errno(errno, "%s: the right to write cannot be held", won->place);
    if (status == LIG_OK)
        status = start_thread(made);
    if (status == LIG_OK)
        *lease = made;
    else
        ligi_lease_release(made);
    return status;
}

lig_status ligi_lease_take(ligi_lease **lease, int folder_fd, const char *place, int64_t lease_s)
{
    attempt self = {.folder_fd = folder_fd, .place = place, .lease_s = lease_s};

    LIG_TRY(make_candidate(&self));
    lig_status status = try_take(&self);
    unlinkat(folder_fd, self.candidate, 0);
    LIG_TRY(status);
    return lease_create(&self, lease);
}

void ligi_lease_release(ligi_lease *lease)
{
    char text[TEXT_BYTES];
    int64_t beat_ns;

    if (lease == NULL)
        return;
    pthread_mutex_lock(&lease->lock);
    lease->stop = 1;
    pthread_cond_broadcast(&lease->changed);
    pthread_mutex_unlock(&lease->lock);
    if (lease->has_thread)
        pthread_join(lease->thread, NULL);
    if (lease->folder_fd >= 0) {
        if (read_lease(lease->folder_fd, lease->place, LEASE_FILE, text, &beat_ns) == LIG_OK &&
            strcmp(text, lease->text) == 0)
            unlinkat(lease->folder_fd, LEASE_FILE, 0);
        close(lease->folder_fd);
    }
    pthread_cond_destroy(&lease->changed);
    pthread_mutex_destroy(&lease->lock);
    free(lease->place);
    free(lease);
}

lig_status ligi_lease_check(ligi_lease *lease)
{
    char text[TEXT_BYTES];
    int64_t beat_ns;

    lig_status status = read_lease(lease->folder_fd, lease->place, LEASE_FILE, text, &beat_ns);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(LIG_E_BUSY, "%s: the note of who writes is gone; open the store again",
                        lease->place);
    LIG_TRY(status);
    return strcmp(text, lease->text) == 0 ? LIG_OK : busy(lease->place, text);
}
