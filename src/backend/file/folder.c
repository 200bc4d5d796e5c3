#include "backend/file/folder.h"

#include "backend/file/file.h"

#include "backend/file/entry.h"
#include "backend/file/marker.h"
#include "backend/file/names.h"
#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define MARKER LIGI_NAME_MARKER

static const struct {
    uint32_t magic;
    const char *name;
} network_kinds[] = {
    {0x6969, "NFS"},          {0x517B, "SMB"},       {0xFF534D42, "CIFS"}, {0xFE534D42, "SMB2"},
    {0x0BD00BD0, "Lustre"},   {0x47504653, "GPFS"},  {0x65735546, "FUSE"}, {0x5346414F, "AFS"},
    {0x00C36400, "Ceph"},     {0x01021997, "9P"},    {0x01161970, "GFS2"}, {0x7461636F, "OCFS2"},
    {0x19830326, "BeeGFS"},   {0x73757245, "Coda"},  {0x564C, "NCP"},      {0xAAD7AAEA, "PanFS"},
    {0xF1954F53, "OrangeFS"}, {0x20030528, "PVFS2"},
};

#define TMPFS_KIND 0x01021994
#define RAMFS_KIND 0x858458F6

static uint32_t file_system_kind(int fd)
{
    struct statfs info;
    return fstatfs(fd, &info) == 0 ? (uint32_t)info.f_type : 0;
}

int ligi_folder_network(int folder_fd, const char **kind)
{
    uint32_t magic = file_system_kind(folder_fd);

    for (size_t i = 0; i < sizeof network_kinds / sizeof network_kinds[0]; i++) {
        if (network_kinds[i].magic != magic)
            continue;
        if (kind != NULL)
            *kind = network_kinds[i].name;
        return 1;
    }
    return 0;
}

static void find_direct(ligi_file *self)
{
    struct statx info;
    uint32_t kind = file_system_kind(self->folder_fd);

    self->memory_align = self->offset_align = LIGI_ALIGN_BYTES;
    self->direct = strcmp(self->options.direct, "0") != 0;
    self->direct_note = self->direct ? "O_DIRECT" : "page cache (direct=0)";
    if (strcmp(self->options.direct, "auto") == 0 && (kind == TMPFS_KIND || kind == RAMFS_KIND)) {
        self->direct = 0;
        self->direct_note = "memory (tmpfs)";
    }
    if (!self->direct)
        return;
    const char *refused = "page cache (O_DIRECT is not available here)";
    int fd;
    if (ligi_entry_open(self->folder_fd, self->folder_fd, self->place, MARKER, O_RDONLY | O_DIRECT,
                        &fd) != LIG_OK) {
        self->direct = 0;
        self->direct_note = refused;
        return;
    }
    memset(&info, 0, sizeof info);
    long failed = syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info);
    close(fd);
    if (failed != 0 || (info.stx_mask & STATX_DIOALIGN) == 0)
        return;
    /* The kernel answers zeros for a file that only pretends. */
    if (info.stx_dio_mem_align == 0 || info.stx_dio_offset_align == 0 ||
        info.stx_dio_mem_align > LIGI_ALIGN_BYTES || info.stx_dio_offset_align > LIGI_ALIGN_BYTES) {
        self->direct = 0;
        self->direct_note = refused;
        return;
    }
    self->memory_align = info.stx_dio_mem_align;
    self->offset_align = info.stx_dio_offset_align;
}

uint64_t ligi_folder_random_id(void)
{
    uint64_t id = 0;

    while (id == 0) {
        if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id && errno != EINTR) {
            /* A sandbox may refuse it: time and process id are sufficient for a name that is
             * checked to be unused. */
            struct timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            id = ((uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec << 20 ^ (uint64_t)getpid()) *
                 UINT64_C(0x9E3779B97F4A7C15);
        }
        id &= INT64_MAX;
    }
    return id;
}

lig_status ligi_folder_sync(int folder_fd, const char *what)
{
    /* Some file systems cannot sync a folder and return EINVAL; this is not an error.
     */
    if (fsync(folder_fd) != 0 && errno != EINVAL && errno != EROFS)
        return ligi_fail_errno(errno, "fsync of folder %s failed", what);
    return LIG_OK;
}

/* The allowed contents of a folder that becomes a store: none, or those of a store that lost its
 * marker. */
static int is_ours(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lost+found") == 0 ||
           ligi_name_read(LIGI_FOLDER_STORE, name, NULL) != LIGI_NAME_FOREIGN;
}

static lig_status check_free(const ligi_file *self)
{
    int fd = openat(self->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    lig_status status = LIG_OK;

    if (folder == NULL) {
        status = ligi_fail_errno(errno, "cannot list %s", self->place);
        if (fd >= 0)
            close(fd);
        return status;
    }
    for (struct dirent *entry; status == LIG_OK && (entry = readdir(folder)) != NULL;)
        if (!is_ours(entry->d_name))
            status = lig_fail(
                LIG_E_EXISTS,
                "%s is not a store and contains other files ('%s'): use an empty or a new folder",
                self->place, entry->d_name);
    closedir(folder);
    return status;
}

/* Makes the name of a new folder durable. */
static lig_status sync_parent(const char *path)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) /* a folder that may be searched but not read: nothing can be done about it */
        return LIG_OK;
    lig_status status = ligi_folder_sync(fd, parent);
    close(fd);
    return status;
}

/* Makes the folder and those above it. */
static lig_status make_folders(const char *place, int sync)
{
    char *path;

    LIG_TRY(ligi_strdup(&path, place));
    lig_status status = LIG_OK;
    for (char *slash = path + 1; status == LIG_OK; slash++) {
        if (*slash != '/' && *slash != '\0')
            continue;
        char kept = *slash;
        *slash = '\0';
        if (mkdir(path, 0777) != 0) {
            int number = errno; /* may be EROFS or EACCES even if the folder exists */
            if (number != EEXIST && access(path, F_OK) != 0)
                status = ligi_fail_errno(number, "cannot create folder %s", path);
        } else if (sync) {
            status = sync_parent(path);
        }
        *slash = kept;
        if (kept == '\0')
            break;
    }
    free(path);
    return status;
}

static lig_status open_folder(ligi_file *self)
{
    self->folder_fd = open(self->place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (self->folder_fd >= 0)
        return LIG_OK;
    if (errno == ENOENT && self->read_only)
        return lig_fail(LIG_E_NOTFOUND, "there is no store at %s", self->place);
    if (errno == ENOTDIR)
        return lig_fail(LIG_E_INVALID, "%s is not a folder (a store is a folder)", self->place);
    if (errno != ENOENT)
        return ligi_fail_errno(errno, "cannot open %s", self->place);
    LIG_TRY(make_folders(self->place, self->options.fsync));
    self->folder_fd = open(self->place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (self->folder_fd < 0)
        return ligi_fail_errno(errno, "cannot create folder %s", self->place);
    return LIG_OK;
}

static lig_status open_packs(ligi_file *self)
{
    size_t bytes = strlen(self->place) + sizeof "/" LIGI_NAME_PACKS;

    LIG_TRY(ligi_alloc(&self->packs_place, bytes, "the name of a folder"));
    snprintf(self->packs_place, bytes, "%s/" LIGI_NAME_PACKS, self->place);
    if (!self->read_only && ligi_entry_mkdir(self->folder_fd, LIGI_NAME_PACKS) &&
        self->options.fsync)
        LIG_TRY(ligi_folder_sync(self->folder_fd, self->place));
    lig_status status =
        ligi_entry_folder(self->folder_fd, self->place, LIGI_NAME_PACKS, &self->packs_fd);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(status,
                        "the packs of %s are missing: there is no folder '" LIGI_NAME_PACKS
                        "' is missing",
                        self->place);
    LIG_TRY(status);
    return ligi_entry_identify(self->packs_fd, self->place, LIGI_NAME_PACKS, &self->packs_id);
}

lig_status ligi_folder_check(const ligi_file *self)
{
    return ligi_entry_still(self->folder_fd, self->place, LIGI_NAME_PACKS, &self->packs_id,
                            self->packs_fd);
}

lig_status ligi_folder_open(ligi_file *self)
{
    int made = 0;

    LIG_TRY(open_folder(self));
    lig_status status = ligi_marker_read(self->folder_fd, self->place, &self->format);
    if (status == LIG_E_NOTFOUND) {
        if (self->read_only)
            return lig_fail(LIG_E_NOTFOUND, "%s is not a store: it has no file '" MARKER "'",
                            self->place);
        LIG_TRY(check_free(self));
        LIG_TRY(ligi_marker_make(self->folder_fd, self->place, self->options.fsync, &made));
        status = LIG_OK;
    }
    LIG_TRY(status);
    if (self->options.mode[0] == 'w' && !made)
        return lig_fail(LIG_E_EXISTS, "a store already exists at %s (mode=a opens it)",
                        self->place);
    LIG_TRY(open_packs(self));
    find_direct(self);
    return LIG_OK;
}
