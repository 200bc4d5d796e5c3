/* Data is synced before the rename, the directory after it: a crash leaves the old file or the new
 * one. Where the file system supports it, the file has no name until it is complete, so that not
 * even a kill leaves a temporary file. */
#include "batch.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t piece_bytes = UINT64_C(4) << 20;

static lig_status name_temporary(const cli_outfile *out, int attempt, char **temporary)
{
    return cli_format(temporary, "%s/.ligament-%ld-%d.tmp", out->folder, (long)getpid(), attempt);
}

static lig_status open_named(cli_outfile *out)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        LIG_TRY(name_temporary(out, attempt, &out->temporary));
        out->fd = open(out->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (out->fd >= 0)
            return LIG_OK;
        free(out->temporary);
        out->temporary = NULL;
        if (errno != EEXIST)
            break;
    }
    return cli_fail_path(out->path, "write");
}

lig_status cli_fail_taken(const char *path)
{
    return lig_fail(LIG_E_EXISTS, "'%s' already exists (use --replace to overwrite it)", path);
}

/* The rename would replace a device, a pipe or /dev/stdout, which may lead to a file, by a file. */
static lig_status check_kind(const char *path)
{
    static const char stream[] = "/proc/";
    struct stat facts;
    char target[sizeof stream - 1];
    ssize_t bytes = readlink(path, target, sizeof target);
    int is_stream = bytes == sizeof target && memcmp(target, stream, sizeof target) == 0;
    if (is_stream ||
        (stat(path, &facts) == 0 && !S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode)))
        return lig_fail(LIG_E_INVALID, "cannot write '%s': it exists and is not a file", path);
    return LIG_OK;
}

lig_status cli_outfile_open(cli_outfile *out, const char *path)
{
    LIG_TRY(check_kind(path));
    char *copy;
    *out = (cli_outfile){.fd = -1};
    LIG_TRY(cli_format(&copy, "%s", path));
    lig_status status = cli_format(&out->folder, "%s", dirname(copy));
    free(copy);
    if (status == LIG_OK)
        status = cli_format(&out->path, "%s", path);
    if (status == LIG_OK) {
        out->fd = open(out->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
        if (out->fd < 0)
            status = open_named(out);
    }
    return status == LIG_OK ? LIG_OK : cli_outfile_close(out, status, 0);
}

static lig_status write_all(const cli_outfile *out, const void *data, uint64_t bytes,
                            uint64_t offset)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t wrote = out->is_socket ? send(out->fd, at, bytes, MSG_NOSIGNAL)
                                       : pwrite(out->fd, at, bytes, (off_t)offset);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0 && out->is_socket && (errno == EPIPE || errno == ECONNRESET))
            return lig_fail(LIG_E_PEER, "cannot write '%s': the reader closed the pipe", out->path);
        if (wrote < 0)
            return cli_fail_path(out->path, "write");
        at += wrote;
        offset += (uint64_t)wrote;
        bytes -= (uint64_t)wrote;
    }
    return LIG_OK;
}

lig_status cli_outfile_put(cli_outfile *out, const void *data, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        uint64_t piece = bytes - done < piece_bytes ? bytes - done : piece_bytes;
        LIG_TRY(write_all(out, (const char *)data + done, piece, out->at));
        out->at += piece;
        done += piece;
        if (out->bar != NULL)
            cli_bar_add(out->bar, piece);
    }
    return LIG_OK;
}

/* Links a nameless file under a temporary name next to its final one: a link cannot replace a file,
 * a rename can. */
static lig_status link_temporary(cli_outfile *out)
{
    char source[64];
    snprintf(source, sizeof source, "/proc/self/fd/%d", out->fd);
    for (int attempt = 0; attempt < 100; attempt++) {
        char *temporary;
        LIG_TRY(name_temporary(out, attempt, &temporary));
        if (linkat(AT_FDCWD, source, AT_FDCWD, temporary, AT_SYMLINK_FOLLOW) == 0) {
            out->temporary = temporary;
            return LIG_OK;
        }
        free(temporary);
        if (errno != EEXIST)
            break;
    }
    return cli_fail_path(out->path, "write");
}

static lig_status sync_folder(const cli_outfile *out)
{
    int fd = open(out->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return cli_fail_path(out->folder, "open");
    int failed = fsync(fd);
    close(fd);
    return failed ? cli_fail_path(out->folder, "sync") : LIG_OK;
}

static lig_status finish(cli_outfile *out, int replace)
{
    if (fsync(out->fd) != 0)
        return cli_fail_path(out->path, "sync");
    if (out->temporary == NULL)
        LIG_TRY(link_temporary(out));
    if (!replace) { /* unlike rename, link fails if the name is taken */
        if (link(out->temporary, out->path) != 0)
            return errno == EEXIST ? cli_fail_taken(out->path) : cli_fail_path(out->path, "write");
        unlink(out->temporary);
    } else if (rename(out->temporary, out->path) != 0) {
        return cli_fail_path(out->path, "write");
    }
    free(out->temporary);
    out->temporary = NULL;
    return sync_folder(out);
}

lig_status cli_outfile_close(cli_outfile *out, lig_status status, int replace)
{
    if (status == LIG_OK)
        status = finish(out, replace);
    if (out->temporary != NULL)
        unlink(out->temporary);
    if (out->fd >= 0)
        close(out->fd);
    free(out->temporary);
    free(out->folder);
    free(out->path);
    *out = (cli_outfile){.fd = -1};
    return status;
}

lig_status cli_outfile_write(const char *path, const void *data, uint64_t bytes, int replace)
{
    cli_outfile out;
    LIG_TRY(cli_outfile_open(&out, path));
    return cli_outfile_close(&out, cli_outfile_put(&out, data, bytes), replace);
}
