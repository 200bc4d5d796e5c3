#include "backend/file/marker.h"

#include "backend/file/entry.h"
#include "backend/file/folder.h"
#include "backend/file/names.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARKER LIGI_NAME_MARKER
#define MARKER_TEXT "ligament store, format 2\n"
#define MARKER_START "ligament store, format "
#define PREPARED MARKER ".0000000000000002" /* one process upgrades a store at a time */

lig_status ligi_marker_read(int folder_fd, const char *place, int *format)
{
    char text[64] = "", known[64];

    int fd;
    LIG_TRY(ligi_entry_open(folder_fd, folder_fd, place, MARKER, O_RDONLY, &fd));
    ssize_t got = read(fd, text, sizeof text - 1);
    int number = errno;
    close(fd);
    if (got < 0)
        return ligi_fail_errno(number, "cannot read %s/" MARKER, place);
    for (int i = LIGI_FORMAT_CATALOG; i <= LIGI_FORMAT_LOG; i++) {
        snprintf(known, sizeof known, MARKER_START "%d\n", i);
        if (strcmp(text, known) == 0) {
            *format = i;
            return LIG_OK;
        }
    }
    if (strncmp(text, MARKER_START, strlen(MARKER_START)) != 0)
        return lig_fail(LIG_E_CORRUPT, "%s/" MARKER " is not the marker of a store", place);
    return lig_fail(
        LIG_E_UNSUPPORTED,
        "%s has format %ld, but this library supports formats up to %d (use a newer library)",
        place, strtol(text + strlen(MARKER_START), NULL, 10), LIGI_FORMAT_LOG);
}

static lig_status write_text(int folder_fd, const char *place, const char *name, int sync)
{
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return ligi_fail_errno(errno, "%s cannot be written (mode=r reads only)", place);
    ligi_entry_own(folder_fd, fd);
    lig_status status = ligi_write_all(fd, MARKER_TEXT, strlen(MARKER_TEXT), 0);
    if (status != LIG_OK)
        status = ligi_fail_errno(lig_error_number(), "cannot write %s/" MARKER, place);
    if (status == LIG_OK && sync && fsync(fd) != 0)
        status = ligi_fail_errno(errno, "fsync of %s/" MARKER " failed", place);
    close(fd);
    return status;
}

/* A link, not a rename: of two that make a store at once one makes the marker, and mode=w of the
 * other fails. */
static lig_status link_marker(int folder_fd, const char *place, const char *temporary, int *made)
{
    *made = linkat(folder_fd, temporary, folder_fd, MARKER, 0) == 0;
    if (*made || errno == EEXIST)
        return LIG_OK;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK)
        return ligi_fail_errno(errno, "cannot create %s/" MARKER, place);
    if (renameat(folder_fd, temporary, folder_fd, MARKER) != 0)
        return ligi_fail_errno(errno, "cannot create %s/" MARKER, place);
    *made = 1;
    return LIG_OK;
}

lig_status ligi_marker_make(int folder_fd, const char *place, int sync, int *made)
{
    char temporary[48];

    snprintf(temporary, sizeof temporary, MARKER ".%016" PRIx64, ligi_folder_random_id());
    lig_status status = write_text(folder_fd, place, temporary, sync);
    if (status == LIG_OK)
        status = link_marker(folder_fd, place, temporary, made);
    unlinkat(folder_fd, temporary, 0);
    return status == LIG_OK && sync ? ligi_folder_sync(folder_fd, place) : status;
}

lig_status ligi_marker_prepare(int folder_fd, const char *place)
{
    ligi_marker_discard(folder_fd);
    lig_status status = write_text(folder_fd, place, PREPARED, 1);
    if (status != LIG_OK)
        ligi_marker_discard(folder_fd);
    return status;
}

lig_status ligi_marker_publish(int folder_fd, const char *place)
{
    if (renameat(folder_fd, PREPARED, folder_fd, MARKER) != 0)
        return ligi_fail_errno(errno, "cannot replace %s/" MARKER, place);
    return ligi_folder_sync(folder_fd, place);
}

void ligi_marker_discard(int folder_fd)
{
    unlinkat(folder_fd, PREPARED, 0);
}
