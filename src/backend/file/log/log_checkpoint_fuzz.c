/* Any bytes as a checkpoint: it is read, searched or reported as damaged. */
#include "backend/file/log/log_checkpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static lig_status touch(void *context, const ligi_checkpoint_item *item)
{
    volatile uint8_t *seen = context;

    if (item->key_bytes > 0)
        *seen ^= item->key[item->key_bytes - 1];
    if (item->value_bytes > 0)
        *seen ^= item->value[item->value_bytes - 1];
    return LIG_OK;
}

static void use(ligi_file_log *log)
{
    uint8_t seen = 0;
    ligi_checkpoint_item item = {.key = (const uint8_t *)"key", .key_bytes = 3};
    size_t skipped = 0;
    void *value;

    (void)ligi_checkpoint_read(log, 1, touch, &seen);
    (void)ligi_checkpoint_salvage(log, 1, touch, &seen, &skipped);
    if (ligi_checkpoint_find(log, 1, &item, &value) == LIG_OK)
        free(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char folder[] = "/dev/shm/ligament-fuzz-XXXXXX";
    ligi_file_log log;

    memset(&log, 0, sizeof log);
    int fd = mkdtemp(folder) == NULL ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (ligi_clog_folder_open(&log.folder, fd, folder, 0, 0) == LIG_OK) {
        int file =
            openat(fd, "log/checkpoint-0000000000000001", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (file >= 0 && write(file, data, size) == (ssize_t)size)
            use(&log);
        if (file >= 0)
            close(file);
        ligi_clog_folder_close(&log.folder);
    }
    unlinkat(fd, "log/checkpoint-0000000000000001", 0);
    unlinkat(fd, "log", AT_REMOVEDIR);
    close(fd);
    rmdir(folder);
    return 0;
}
