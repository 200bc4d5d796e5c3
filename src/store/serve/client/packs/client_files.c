#include "store/serve/client/packs/client_files.h"

#include "base/error.h"
#include "store/serve/client/client_request.h"
#include "store/serve/client/packs/descriptor_receive.h"
#include "store/serve/message/served_reads.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 64 };

struct ligi_client_file {
    uint64_t pack, bytes;
    int fd;
    int holders;   /* the table, and those who read */
    uint64_t used; /* when, in uses of the table */
};

struct ligi_client_files {
    pthread_mutex_t lock; /* guards all below */
    ligi_client_file *files[FILES_MAX];
    uint64_t uses;
    int none; /* the server's packs are not files */
};

lig_status ligi_client_files_create(ligi_client_files **out)
{
    ligi_client_files *files;
    LIG_TRY(ligi_calloc(&files, 1, sizeof *files, "a table of packs"));
    pthread_mutex_init(&files->lock, NULL);
    *out = files;
    return LIG_OK;
}

static void close_file(ligi_client_file *file)
{
    close(file->fd);
    free(file);
}

void ligi_client_files_destroy(ligi_client_files *files)
{
    for (size_t i = 0; files && i < FILES_MAX; i++)
        if (files->files[i])
            close_file(files->files[i]);
    if (files)
        pthread_mutex_destroy(&files->lock);
    free(files);
}

static void drop_locked(ligi_client_file *file)
{
    if (--file->holders == 0)
        close_file(file);
}

static int is_removed(const ligi_client_file *file)
{
    struct statx info;
    return statx(file->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_NLINK, &info) == 0 &&
           info.stx_nlink == 0;
}

void ligi_client_files_drop_removed(ligi_client_files *files)
{
    pthread_mutex_lock(&files->lock);
    for (size_t i = 0; i < FILES_MAX; i++)
        if (files->files[i] && is_removed(files->files[i])) {
            drop_locked(files->files[i]);
            files->files[i] = NULL;
        }
    pthread_mutex_unlock(&files->lock);
}

void ligi_client_file_drop(ligi_client *client, ligi_client_file *file)
{
    if (file == NULL)
        return;
    pthread_mutex_lock(&client->files->lock);
    drop_locked(file);
    pthread_mutex_unlock(&client->files->lock);
}

static ligi_client_file *find_file(ligi_client_files *files, uint64_t pack, int *none)
{
    ligi_client_file *found = NULL;
    pthread_mutex_lock(&files->lock);
    *none = files->none;
    for (size_t i = 0; i < FILES_MAX && found == NULL; i++)
        if (files->files[i] && files->files[i]->pack == pack)
            found = files->files[i];
    if (found) {
        found->holders++;
        found->used = ++files->uses;
    }
    pthread_mutex_unlock(&files->lock);
    return found;
}

/* Replaces the least recently used one. */
static void keep_file(ligi_client_files *files, ligi_client_file *file)
{
    size_t at = 0;
    pthread_mutex_lock(&files->lock);
    for (size_t i = 0; i < FILES_MAX && files->files[at]; i++)
        if (files->files[i] == NULL || files->files[i]->used < files->files[at]->used)
            at = i;
    if (files->files[at])
        drop_locked(files->files[at]);
    files->files[at] = file;
    file->used = ++files->uses;
    file->holders = 2;
    pthread_mutex_unlock(&files->lock);
}

static lig_status ask_descriptor(ligi_client *client, uint64_t pack, ligi_client_file *file)
{
    ligi_client_call call = {.op = LIGI_SERVED_DESCRIPTOR, .interrupt = client->interrupt};
    ligi_served_descriptor descriptor;
    ligi_served_number_put(&call.body, pack);
    lig_status status = ligi_client_ask(client, &call);
    if (status == LIG_OK)
        status = ligi_served_descriptor_get(call.reply, call.reply_bytes, &descriptor);
    if (status == LIG_OK) {
        file->pack = pack;
        file->bytes = descriptor.pack_bytes;
        status = ligi_descriptor_receive(&descriptor, &file->fd);
    }
    ligi_client_call_fini(&call);
    return status;
}

static int offers_files(ligi_client *client)
{
    ligi_net_lock(client->net);
    int offers = client->same_host && client->welcome.flags & LIGI_SERVED_DESCRIPTORS &&
                 strcmp(client->options.transport, "tcp") != 0;
    ligi_net_unlock(client->net);
    return offers;
}

/* A descriptor that cannot be handed over is no reason to fail: the server can read the pack. */
lig_status ligi_client_file_open(ligi_client *client, uint64_t pack, ligi_client_file **out)
{
    ligi_client_files *files = client->files;
    int none;
    *out = find_file(files, pack, &none);
    if (*out || none || !offers_files(client))
        return LIG_OK;
    ligi_client_file *file;
    LIG_TRY(ligi_calloc(&file, 1, sizeof *file, "a pack"));
    lig_status status = ask_descriptor(client, pack, file);
    if (status == LIG_OK) {
        keep_file(files, file);
        *out = file;
        return LIG_OK;
    }
    free(file);
    if (status != LIG_E_UNSUPPORTED)
        return status;
    pthread_mutex_lock(&files->lock);
    files->none = 1;
    pthread_mutex_unlock(&files->lock);
    return LIG_OK;
}

uint64_t ligi_client_file_bytes(const ligi_client_file *file)
{
    return file->bytes;
}

lig_status ligi_client_file_read(const ligi_client_file *file, const void *secret,
                                 const lig_range *ranges, size_t count, size_t *bad)
{
    const ligi_descriptor_pack pack = {file->fd, file->pack, file->bytes, secret};
    return ligi_descriptor_read(&pack, ranges, count, bad);
}

lig_status ligi_client_file_map(const ligi_client_file *file, uint32_t flags, lig_mapping *mapping)
{
    int writable = (flags & LIG_MAP_PRIVATE) != 0;
    void *base = mmap(NULL, file->bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                      writable ? MAP_PRIVATE : MAP_SHARED, file->fd, 0);
    if (base == MAP_FAILED)
        return ligi_fail_errno(errno, "mmap of pack %016llx failed",
                               (unsigned long long)file->pack);
    *mapping = (lig_mapping){.base = base, .bytes = file->bytes};
    return LIG_OK;
}
