#include "backend/file/log/log_start.h"

#include "backend/file/log/log_numbers.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS_MAX 16 /* for a segment that is removed again and again */

lig_status ligi_clog_choose_segment(ligi_file_log *log, uint64_t version, uint64_t *segment)
{
    uint64_t *numbers;
    size_t count;

    LIG_TRY(ligi_clog_folder_list(&log->folder, LIGI_NAME_SEGMENT, &numbers, &count));
    *segment = count > 0 && version == 0 ? numbers[0] : 0;
    for (size_t i = 0; i < count && numbers[i] <= version; i++)
        *segment = numbers[i];
    free(numbers);
    return LIG_OK;
}

static lig_status segment_start(ligi_file_log *log, uint64_t segment, ligi_clog_position *at,
                                uint8_t id[16])
{
    ligi_segment_header header;
    ligi_clog_file *file;

    LIG_TRY(ligi_clog_segment_file(log, segment, &file));
    lig_status status = ligi_segment_header_read(&log->folder, file->fd, segment, &header);
    ligi_clog_folder_release(&log->folder, file);
    LIG_TRY(status);
    memcpy(id, header.id, sizeof header.id);
    *at = (ligi_clog_position){segment - 1, header.previous, segment, LIGI_SEGMENT_HEADER_BYTES, 0};
    return LIG_OK;
}

/* The start of the segment that ligi_clog_choose_segment names. One that a checkpoint has made
 * superfluous may be removed meanwhile. LIG_E_NOTFOUND without an error text if there is none. */
static lig_status chosen_start(ligi_file_log *log, uint64_t version, ligi_clog_position *at,
                               uint8_t id[16])
{
    lig_status status = LIG_E_NOTFOUND;

    for (int i = 0; i < LOOKS_MAX && status == LIG_E_NOTFOUND; i++) {
        uint64_t segment;
        LIG_TRY(ligi_clog_choose_segment(log, version, &segment));
        if (segment == 0)
            break;
        status = segment_start(log, segment, at, id);
    }
    return status;
}

lig_status ligi_file_log_first(ligi_file_log *log, ligi_clog_position *at)
{
    lig_status status = chosen_start(log, 0, at, log->id);

    if (status != LIG_E_NOTFOUND || log->numbered != 1)
        return status;
    *at = ligi_clog_before_number(0, ligi_clog_chain_start(log->id));
    return LIG_OK;
}

lig_status ligi_file_log_before(ligi_file_log *log, uint64_t version, ligi_clog_position *at)
{
    uint8_t id[16]; /* the log's own may be in use by a writer */

    lig_status status = chosen_start(log, version + 1, at, id);
    if (status == LIG_E_NOTFOUND)
        return lig_fail(status,
                        "%s: the commits after version %" PRIu64
                        " are no longer in the log (list the models again)",
                        log->folder.place, version);
    return status;
}
