#include "backend/file/log/head/head.h"

#include "backend/file/log/head/lock_holder.h"

#include "base/bell.h"
#include "base/boot.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096
#define MAGIC "LIGHEAD1"
#define ATTACH_BYTE 8 /* of the file; the locks are bytes 0 to 2 */
#define SYNC_BYTE 16  /* and these: which one, the epoch says */
#define SYNCS 8
#define WITNESSES 2
#define BITS 32
#define SPIN_NS INT64_C(40000)

typedef struct witness { /* torn ones do not fit their check */
    atomic_uint_least64_t version, epoch, check;
} witness;

typedef struct left_index {
    uint64_t device, inode, bytes, changed_ns, modified_ns, check;
} left_index;

struct ligi_head_page {
    uint8_t magic[8];
    uint8_t boot[16];
    ligi_bell published; /* also: a commit was synced, a process is no longer alone */
    atomic_uint epoch, damaged;
    atomic_uint_least64_t appended, appended_check, segment, poisoned, reserved;
    atomic_int holders[LIGI_HEAD_LOCKS];
    witness synced[WITNESSES];
    left_index left;
    atomic_uint_least64_t syncing[SYNCS]; /* the segment, for each sync lock; 0: nobody */
    atomic_uint lost;                     /* the last epoch that began with a loss */
    ligi_bell freed[LIGI_HEAD_LOCKS];
    atomic_uint_least64_t named;
    atomic_int_least64_t spinning; /* until when a process polls for the write lock */
};
_Static_assert(sizeof(ligi_head_page) <= PAGE_BYTES, "the head is one page");

/* --- the page --- */

static uint64_t witness_check(uint64_t version, uint64_t epoch)
{
    uint64_t words[2] = {version, epoch};
    return ligi_hash64_plain(words, sizeof words);
}

uint32_t ligi_head_epoch(const ligi_head *head)
{
    return atomic_load(&head->page->epoch);
}

static uint64_t page_synced(const ligi_head_page *page)
{
    uint64_t best = 0, now = atomic_load(&page->epoch);

    for (int i = 0; i < WITNESSES; i++) {
        const witness *slot = &page->synced[i];
        uint64_t version = atomic_load(&slot->version), epoch = atomic_load(&slot->epoch);
        if (version > best && epoch == now &&
            atomic_load(&slot->check) == witness_check(version, epoch))
            best = version;
    }
    return best;
}

/* The slot that is not the newest of this epoch. */
static void put_witness(ligi_head_page *page, uint64_t newest, uint64_t version, uint32_t epoch)
{
    witness *slot = &page->synced[atomic_load(&page->synced[0].version) == newest];

    atomic_store(&slot->version, version);
    atomic_store(&slot->epoch, epoch);
    atomic_store(&slot->check, witness_check(version, epoch));
}

void ligi_head_epoch_next(ligi_head *head, uint64_t version, int whole)
{
    ligi_head_page *page = head->page;
    uint32_t next = atomic_load(&page->epoch) + 1;

    if (!whole || version < atomic_load(&page->appended))
        atomic_store(&page->lost, next);
    atomic_store(&page->appended, version);
    if (whole) /* before the epoch: readers must never see one without a durable version */
        put_witness(page, page_synced(page), version, next);
    atomic_store(&page->epoch, next);
}

int ligi_head_lost(const ligi_head *head, uint32_t epoch)
{
    return epoch < atomic_load(&head->page->lost);
}

uint64_t ligi_head_synced(const ligi_head *head)
{
    return page_synced(head->page);
}

static int page_syncing(const ligi_head_page *page)
{
    for (int i = 0; i < SYNCS; i++)
        if (atomic_load(&page->syncing[i]) != 0)
            return 1;
    return 0;
}

/* What was published since the machine started exists, synced or not, unless a sync failed. */
static uint64_t page_published(const ligi_head_page *page)
{
    uint64_t synced = page_synced(page), appended = atomic_load(&page->appended);
    uint8_t boot[16];

    if (appended <= synced || atomic_load(&page->poisoned) != 0 || page_syncing(page) ||
        atomic_load(&page->appended_check) != witness_check(appended, 0) || !ligi_boot_id(boot) ||
        memcmp(boot, page->boot, sizeof boot) != 0)
        return synced;
    return appended;
}

uint64_t ligi_head_witness(int fd)
{
    ligi_head_page page;

    return pread(fd, &page, sizeof page, 0) == (ssize_t)sizeof page ? page_published(&page) : 0;
}

void ligi_head_sync(ligi_head *head, uint64_t version, uint32_t epoch)
{
    uint64_t newest = ligi_head_synced(head);

    if (version > newest && epoch == ligi_head_epoch(head))
        put_witness(head->page, newest, version, epoch);
}

uint64_t ligi_head_appended(const ligi_head *head)
{
    return atomic_load(&head->page->appended);
}

void ligi_head_append(ligi_head *head, uint64_t version)
{
    uint64_t known = atomic_load(&head->page->appended);

    while (known < version && !atomic_compare_exchange_weak(&head->page->appended, &known, version))
        ;
    do { /* others may publish at the same time: the check is that of the last one */
        known = atomic_load(&head->page->appended);
        atomic_store(&head->page->appended_check, witness_check(known, 0));
    } while (atomic_load(&head->page->appended) != known);
    ligi_bell_ring_all(&head->page->published);
}

uint64_t ligi_head_segment(const ligi_head *head)
{
    return atomic_load(&head->page->segment);
}

void ligi_head_segment_set(ligi_head *head, uint64_t first)
{
    if (atomic_exchange(&head->page->segment, first) != first)
        ligi_bell_ring_all(&head->page->freed[LIGI_HEAD_SYNC]);
}

void ligi_head_rolling(ligi_head *head)
{
    atomic_store(&head->page->named, 0); /* the next one may have the same number */
    atomic_store(&head->page->segment, 0);
}

uint64_t ligi_head_named(const ligi_head *head)
{
    return atomic_load(&head->page->named);
}

void ligi_head_named_set(ligi_head *head, uint64_t first)
{
    atomic_store(&head->page->named, first);
}

uint64_t ligi_head_poisoned(const ligi_head *head)
{
    return atomic_load(&head->page->poisoned);
}

void ligi_head_poison(ligi_head *head, uint64_t first)
{
    uint64_t known = atomic_load(&head->page->poisoned);

    /* A process that was stopped must not unmark a newer segment. */
    while (known < first && !atomic_compare_exchange_weak(&head->page->poisoned, &known, first))
        ;
}

void ligi_head_sync_failed(ligi_head *head, uint64_t first)
{
    if (head->locks[LIGI_HEAD_SYNC].epoch == ligi_head_epoch(head))
        ligi_head_poison(head, first);
}

void ligi_head_poison_clear(ligi_head *head)
{
    atomic_store(&head->page->poisoned, 0);
}

void ligi_head_unpoison(ligi_head *head, uint64_t first)
{
    (void)atomic_compare_exchange_strong(&head->page->poisoned, &first, 0);
}

int ligi_head_damaged(const ligi_head *head)
{
    return atomic_load(&head->page->damaged) != 0;
}

void ligi_head_damage(ligi_head *head, int damaged)
{
    atomic_store(&head->page->damaged, damaged ? 1 : 0);
}

int ligi_head_sync_begin(ligi_head *head, uint64_t first)
{
    uint32_t epoch = head->locks[LIGI_HEAD_SYNC].epoch;
    uint64_t cut = atomic_exchange(&head->page->syncing[epoch % SYNCS], first);

    if (cut == first) /* nothing depends on that of another segment any more */
        ligi_head_poison(head, cut);
    if (epoch == ligi_head_epoch(head))
        return 1;
    ligi_head_sync_end(head, 0);
    return 0;
}

void ligi_head_sync_end(ligi_head *head, uint64_t version)
{
    uint32_t epoch = head->locks[LIGI_HEAD_SYNC].epoch;

    ligi_head_sync(head, version, epoch);
    atomic_store(&head->page->syncing[epoch % SYNCS], 0);
}

void ligi_head_renew(ligi_head *head)
{
    uint8_t boot[16];

    int same = ligi_boot_id(boot) && memcmp(boot, head->page->boot, sizeof boot) == 0;
    if (!same)
        atomic_store(&head->page->poisoned, 0);
    for (int i = 0; i < SYNCS; i++) {
        uint64_t cut = atomic_exchange(&head->page->syncing[i], 0);
        if (same && cut > ligi_head_poisoned(head))
            ligi_head_poison(head, cut);
    }
    memcpy(head->page->boot, boot, sizeof boot);
    atomic_store(&head->page->appended, 0);
    atomic_store(&head->page->damaged, 0);
    atomic_store(&head->page->segment, 0);
    atomic_store(&head->page->published.waiters, 0);
    for (int i = 0; i < LIGI_HEAD_LOCKS; i++) {
        atomic_store(&head->page->holders[i], 0);
        atomic_store(&head->page->freed[i].waiters, 0);
    }
}

static void describe_left(const struct stat *info, left_index *left)
{
    memset(left, 0, sizeof *left);
    left->device = info->st_dev;
    left->inode = info->st_ino;
    left->bytes = (uint64_t)info->st_size;
    left->changed_ns =
        (uint64_t)info->st_ctim.tv_sec * 1000000000 + (uint64_t)info->st_ctim.tv_nsec;
    left->modified_ns =
        (uint64_t)info->st_mtim.tv_sec * 1000000000 + (uint64_t)info->st_mtim.tv_nsec;
    left->check = ligi_hash64_plain(left, offsetof(left_index, check));
}

void ligi_head_leave(ligi_head *head, const struct stat *info)
{
    describe_left(info, &head->page->left);
}

/* Bound to this start of the machine: pages that LMDB wrote and nobody synced may be lost. */
static int page_left(const ligi_head_page *page, const struct stat *info)
{
    uint8_t boot[16];
    left_index now;

    describe_left(info, &now);
    return ligi_boot_id(boot) && memcmp(boot, page->boot, sizeof boot) == 0 &&
           memcmp(&now, &page->left, sizeof now) == 0;
}

int ligi_head_left(const ligi_head *head, const struct stat *info)
{
    return page_left(head->page, info);
}

int ligi_head_vouches(int fd, const struct stat *info)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ATTACH_BYTE, .l_len = 1};
    ligi_head_page page;

    if (pread(fd, &page, sizeof page, 0) != (ssize_t)sizeof page ||
        fcntl(fd, F_OFD_GETLK, &lock) != 0)
        return 0;
    /* A process that is alone may be rebuilding it. */
    return lock.l_type == F_RDLCK || (lock.l_type == F_UNLCK && page_left(&page, info));
}

void ligi_head_unleave(ligi_head *head)
{
    memset(&head->page->left, 0, sizeof head->page->left);
}

/* --- waiting --- */

uint32_t ligi_head_bell(const ligi_head *head)
{
    return ligi_bell_seen(&head->page->published);
}

void ligi_head_wait(ligi_head *head, uint32_t seen, int64_t timeout_ns)
{
    ligi_bell_wait(&head->page->published, seen, LIGI_BELL_ANYBODY, timeout_ns);
}

static uint32_t version_bit(uint64_t version)
{
    return UINT32_C(1) << (version % BITS);
}

uint32_t ligi_head_sync_bell(const ligi_head *head)
{
    return ligi_bell_seen(&head->page->freed[LIGI_HEAD_SYNC]);
}

void ligi_head_sync_wait(ligi_head *head, uint32_t seen, uint64_t version, int64_t timeout_ns)
{
    ligi_bell_wait(&head->page->freed[LIGI_HEAD_SYNC], seen, version_bit(version), timeout_ns);
}

/* Wakes those whose commits are durable, and one of the others, to sync next. `before`: what was
 * durable before. A bit stands for one version while no more than 32 are in play. */
static void ring_synced(ligi_head *head, uint64_t before)
{
    ligi_bell *bell = &head->page->freed[LIGI_HEAD_SYNC];
    uint64_t synced = ligi_head_synced(head);
    uint32_t later = 0;

    ligi_bell_strike(bell);
    uint64_t appended = ligi_head_appended(head);
    if (appended - before > BITS || appended - synced > BITS) {
        ligi_bell_wake(bell, INT_MAX, LIGI_BELL_ANYBODY);
        return;
    }
    for (uint64_t version = appended; version > synced; version--)
        later |= version_bit(version);
    ligi_bell_wake(bell, INT_MAX, ~later);
    ligi_bell_wake(bell, 1, later);
}

static int try_kernel(const ligi_head *head, off_t byte, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    return fcntl(head->fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

/* The write lock is held for less time than a sleeping process takes to wake up. So one of those
 * that wait watches the page instead, for a short time, and has the lock as soon as it is free.
 * `spinning` says until when: if that one is killed, the next one begins then. */
static int try_spinning(ligi_head *head)
{
    ligi_head_page *page = head->page;
    int64_t now = ligi_now_ns(), end = now + SPIN_NS, other = atomic_load(&page->spinning);
    int number = EAGAIN;

    if (!head->spins || (other > now && other <= end) ||
        !atomic_compare_exchange_strong(&page->spinning, &other, end))
        return EAGAIN;
    for (; number == EAGAIN && now < end; now = ligi_now_ns())
        if (atomic_load(&page->holders[LIGI_HEAD_WRITE]) == 0)
            number = try_kernel(head, LIGI_HEAD_WRITE, F_WRLCK);
    atomic_store(&page->spinning, 0);
    return number;
}

static lig_status wait_kernel(ligi_head *head, ligi_bell *bell, off_t byte, short type,
                              int64_t deadline)
{
    for (;;) {
        uint32_t seen = ligi_bell_seen(bell);
        int number = try_kernel(head, byte, type);
        if (number == EAGAIN && byte == LIGI_HEAD_WRITE && ligi_now_ns() < deadline)
            number = try_spinning(head);
        if (number == 0)
            return LIG_OK;
        if (number != EAGAIN && number != EACCES && number != EINTR)
            return ligi_fail_errno(number, "%s: cannot lock the log", head->place);
        int64_t left = deadline - ligi_now_ns();
        if (left <= 0)
            return LIG_E_TIMEOUT;
        ligi_bell_wait(bell, seen, LIGI_BELL_ANYBODY, left);
    }
}

/* --- the locks --- */

int ligi_head_stopped(const ligi_head *head, ligi_head_which which)
{
    int pid = atomic_load(&head->page->holders[which]);
    return pid > 0 && ligi_process_stopped(pid);
}

void ligi_head_writer(int fd, char *text, size_t text_bytes)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LIGI_HEAD_WRITE, .l_len = 1};
    ligi_head_page page;

    text[0] = '\0';
    if (fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK &&
        pread(fd, &page, sizeof page, 0) == (ssize_t)sizeof page)
        ligi_process_name(atomic_load(&page.holders[LIGI_HEAD_WRITE]), text, text_bytes);
}

static int take_thread(ligi_head_lock *lock, int64_t timeout_ns)
{
    struct timespec deadline = ligi_deadline(timeout_ns);

    pthread_mutex_lock(&lock->guard);
    while (lock->taken)
        if (pthread_cond_timedwait(&lock->freed, &lock->guard, &deadline) == ETIMEDOUT)
            break;
    int got = !lock->taken;
    if (got)
        lock->owner = pthread_self();
    lock->taken = 1;
    pthread_mutex_unlock(&lock->guard);
    return got;
}

static void free_thread(ligi_head_lock *lock)
{
    pthread_mutex_lock(&lock->guard);
    lock->taken = 0;
    pthread_cond_signal(&lock->freed);
    pthread_mutex_unlock(&lock->guard);
}

/* A process that was stopped while it synced keeps its lock, and the next epoch has another. */
static off_t lock_byte(const ligi_head *head, ligi_head_which which)
{
    return which == LIGI_HEAD_SYNC ? SYNC_BYTE + (off_t)(head->locks[which].epoch % SYNCS)
                                   : (off_t)which;
}

lig_status ligi_head_take(ligi_head *head, ligi_head_which which, int64_t timeout_ns)
{
    int64_t deadline = ligi_now_ns() + timeout_ns;
    char holder[64];

    lig_status status = LIG_E_TIMEOUT;
    if (take_thread(&head->locks[which], timeout_ns)) {
        head->locks[which].epoch = ligi_head_epoch(head);
        status =
            wait_kernel(head, &head->page->freed[which], lock_byte(head, which), F_WRLCK, deadline);
        if (status == LIG_OK) {
            atomic_store(&head->page->holders[which], getpid());
            head->locks[which].synced = ligi_head_synced(head);
            return LIG_OK;
        }
        free_thread(&head->locks[which]);
    }
    if (status != LIG_E_TIMEOUT || which == LIGI_HEAD_SYNC)
        return status;
    ligi_process_name(atomic_load(&head->page->holders[which]), holder, sizeof holder);
    return lig_fail(LIG_E_TIMEOUT,
                    "%s: %s holds the write lock of the log (if it is stopped, resume or kill it)",
                    head->place, holder);
}

void ligi_head_release(ligi_head *head, ligi_head_which which)
{
    uint64_t before = head->locks[which].synced;

    atomic_store(&head->page->holders[which], 0);
    (void)try_kernel(head, lock_byte(head, which), F_UNLCK);
    free_thread(&head->locks[which]);
    if (which == LIGI_HEAD_SYNC) {
        ring_synced(head, before);
        ligi_bell_ring_all(&head->page->published);
    } else {
        ligi_bell_ring_one(&head->page->freed[which]); /* for one: the others sleep on */
    }
}

int ligi_head_mine(ligi_head *head, ligi_head_which which)
{
    ligi_head_lock *lock = &head->locks[which];

    pthread_mutex_lock(&lock->guard);
    int mine = lock->taken && pthread_equal(lock->owner, pthread_self());
    pthread_mutex_unlock(&lock->guard);
    return mine;
}

lig_status ligi_head_attach(ligi_head *head, int alone, int64_t timeout_ns)
{
    if (alone)
        return try_kernel(head, ATTACH_BYTE, F_WRLCK) == 0 ? LIG_OK : LIG_E_BUSY;
    lig_status status =
        wait_kernel(head, &head->page->published, ATTACH_BYTE, F_RDLCK, ligi_now_ns() + timeout_ns);
    if (status == LIG_OK)
        ligi_bell_ring_all(&head->page->published); /* a process that was alone no longer is */
    return status == LIG_E_TIMEOUT
               ? lig_fail(status, "%s: another process has been rebuilding the index for %.0f s",
                          head->place, (double)timeout_ns / 1e9)
               : status;
}

/* --- open and close --- */

/* A page that the file system has not allocated would raise SIGBUS on a full disk. */
static lig_status fill_page(const ligi_head *head)
{
    uint8_t page[PAGE_BYTES] = {0};
    struct stat info;

    if (fstat(head->fd, &info) != 0)
        return ligi_fail_errno(errno, "fstat of %s/log/head failed", head->place);
    if (info.st_size >= PAGE_BYTES && info.st_blocks > 0)
        return LIG_OK;
    memcpy(page, MAGIC, 8);
    if (pwrite(head->fd, page, PAGE_BYTES, 0) != PAGE_BYTES)
        return ligi_fail_errno(errno ? errno : ENOSPC, "cannot write %s/log/head", head->place);
    return LIG_OK;
}

lig_status ligi_head_open(ligi_head *head, int fd, const char *place)
{
    pthread_condattr_t attributes;
    cpu_set_t processors;

    head->fd = fd;
    head->place = place;
    head->spins =
        sched_getaffinity(0, sizeof processors, &processors) != 0 || CPU_COUNT(&processors) > 1;
    LIG_TRY(fill_page(head));
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return ligi_fail_errno(errno, "mmap of %s/log/head failed", place);
    head->page = page;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    for (int i = 0; i < LIGI_HEAD_LOCKS; i++) {
        pthread_mutex_init(&head->locks[i].guard, NULL);
        pthread_cond_init(&head->locks[i].freed, &attributes);
    }
    pthread_condattr_destroy(&attributes);
    return LIG_OK;
}

void ligi_head_forked(ligi_head *head)
{
    if (head->fd >= 0)
        close(head->fd);
    head->fd = -1;
}

void ligi_head_close(ligi_head *head)
{
    if (head->page != NULL) {
        munmap(head->page, PAGE_BYTES);
        for (int i = 0; i < LIGI_HEAD_LOCKS; i++) {
            pthread_mutex_destroy(&head->locks[i].guard);
            pthread_cond_destroy(&head->locks[i].freed);
        }
    }
    head->page = NULL;
    (void)try_kernel(head, ATTACH_BYTE, F_UNLCK); /* a program that starts may have it open */
    ligi_head_forked(head);
}
