#include "net/secure/secret_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"

/* Precedes the returned bytes; a multiple of every alignment. */
typedef union secret_memory_head {
    size_t bytes; /* of the whole mapping */
    max_align_t align;
} secret_memory_head;

lig_status ligi_secret_memory_alloc(void *out, size_t bytes, const char *what)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t whole = (bytes + sizeof(secret_memory_head) + page - 1) / page * page;
    secret_memory_head *head =
        mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (head == MAP_FAILED)
        return ligi_fail_errno(errno, "out of memory for %s", what);
    /* Each of these is a hardening measure that may fail, for example at RLIMIT_MEMLOCK. */
    mlock(head, whole);
    madvise(head, whole, MADV_DONTDUMP);
    madvise(head, whole, MADV_WIPEONFORK);
    head->bytes = whole;
    *(void **)out = head + 1;
    return LIG_OK;
}

void ligi_secret_memory_free(void *data)
{
    if (data == NULL)
        return;
    secret_memory_head *head = (secret_memory_head *)data - 1;
    size_t whole = head->bytes;
    if (whole == 0) /* wiped: this is a forked child, whose pages go with the process */
        return;
    explicit_bzero(head, whole);
    munmap(head, whole);
}
