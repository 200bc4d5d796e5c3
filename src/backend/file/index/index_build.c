#include "backend/file/index/index_build.h"

#include "backend/file/log/log_start.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TELL_NS INT64_C(1000000000)

typedef struct index_build {
    ligi_file_log *log;
    ligi_mdb_fill fill;
    int64_t told_ns;
    uint64_t items, commits;
} index_build;

lig_status ligi_mdb_base(ligi_file_log *log, uint64_t below, ligi_checkpoint_info *info,
                         size_t *damaged)
{
    uint64_t *numbers;
    size_t count;

    memset(info, 0, sizeof *info);
    LIG_TRY(ligi_clog_folder_list(&log->folder, LIGI_NAME_CHECKPOINT, &numbers, &count));
    lig_status status = LIG_OK;
    while (status == LIG_OK && count-- > 0) {
        if (numbers[count] >= below)
            continue;
        status = ligi_checkpoint_look(log, numbers[count], info);
        if (status == LIG_OK)
            break;
        memset(info, 0, sizeof *info);
        if (status == LIG_E_CORRUPT) {
            *damaged += 1;
            status = LIG_OK;
        }
    }
    free(numbers);
    return status;
}

static void tell(index_build *build)
{
    if (ligi_now_ns() - build->told_ns < TELL_NS)
        return;
    build->told_ns = ligi_now_ns();
    /* The command line knows it by these words. */
    ligi_log(LIG_LOG_INFO, "%s: rebuilding the index: %" PRIu64 " items, %" PRIu64 " commits",
             build->log->folder.place, build->items, build->commits);
}

static lig_status build_item(void *context, const ligi_checkpoint_item *item)
{
    index_build *build = context;

    build->items++;
    tell(build);
    return ligi_mdb_fill_item(&build->fill, item);
}

static lig_status build_record(void *context, const uint8_t *record, const ligi_clog_header *header,
                               const ligi_clog_position *at)
{
    index_build *build = context;

    build->commits++;
    tell(build);
    return ligi_mdb_apply(build->fill.index, record, header, at);
}

/* The position after the checkpoint, or before the first record. */
static lig_status build_base(index_build *build, const ligi_checkpoint_info *info)
{
    ligi_clog_position *at = &build->fill.index->at;

    if (info->version != 0) {
        LIG_TRY(ligi_checkpoint_read(build->log, info->version, build_item, build));
        *at = (ligi_clog_position){.version = info->version, .chain = info->chain};
        return ligi_file_log_find(build->log, at);
    }
    LIG_TRY(ligi_file_log_first(build->log, at));
    if (at->version == 0)
        return LIG_OK;
    return lig_fail(LIG_E_CORRUPT,
                    "%s/" LIGI_NAME_LOG " begins at version %" PRIu64
                    " without a checkpoint (run ligament check --repair)",
                    build->log->folder.place, at->version + 1);
}

lig_status ligi_mdb_build(ligi_file_log *log, ligi_mdb_txn *index, const ligi_checkpoint_info *info,
                          int tail)
{
    index_build build = {.log = log, .fill = {index, info->version}, .told_ns = ligi_now_ns()};
    const ligi_clog_visitor visitor = {build_record, &build};
    ligi_clog_end end;

    index->number = ligi_mdb_bind(index, log->id);
    if (index->number != MDB_SUCCESS)
        return LIG_E_IO;
    LIG_TRY(build_base(&build, info));
    if (tail) {
        LIG_TRY(ligi_file_log_tail(log, &index->at, &visitor));
    } else {
        LIG_TRY(ligi_file_log_read(log, &index->at, build_record, &build, &end));
        if (end == LIGI_CLOG_DAMAGED)
            return lig_fail(LIG_E_CORRUPT, "%s: the log is damaged at version %" PRIu64,
                            log->folder.place, index->at.version + 1);
    }
    index->number = ligi_mdb_position_put(index);
    return index->number == MDB_SUCCESS ? LIG_OK : LIG_E_IO;
}
