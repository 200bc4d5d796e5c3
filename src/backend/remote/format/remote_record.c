#include "backend/remote/format/remote_record.h"

#include "base/error.h"
#include "base/hash.h"

#define MAGIC UINT32_C(0x4547494C) /* "LIGE" */
#define LIST_MAX (1u << 24)

static void put_list(ligi_writer *writer, const ligi_pack_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        ligi_put_u64(writer, list->packs[i]);
}

lig_status ligi_remote_record_put(ligi_writer *writer, const ligi_remote_edit *edit)
{
    size_t start = writer->bytes;
    ligi_clog_header header = {.version = edit->version,
                               .previous = edit->previous,
                               .synced = edit->version - 1,
                               .date_ns = edit->date_ns};

    if (edit->named.count > LIST_MAX || edit->condemned.count > LIST_MAX ||
        edit->forgotten.count > LIST_MAX)
        return lig_fail(LIG_E_LIMIT, "a commit names too many packs: at most %u are allowed",
                        LIST_MAX);
    ligi_put_bytes(writer, edit->id, sizeof edit->id);
    ligi_put_u32(writer, MAGIC);
    ligi_put_u32(writer, edit->flags);
    ligi_put_u32(writer, (uint32_t)edit->named.count);
    ligi_put_u32(writer, (uint32_t)edit->condemned.count);
    ligi_put_u32(writer, (uint32_t)edit->forgotten.count);
    ligi_put_u32(writer, 0);
    put_list(writer, &edit->named);
    put_list(writer, &edit->condemned);
    put_list(writer, &edit->forgotten);
    LIG_TRY(writer->status);
    ligi_put_u64(writer, ligi_hash64_plain(writer->data + start, writer->bytes - start));
    LIG_TRY(writer->status);
    return ligi_clog_record_put(writer, edit->edit, &header);
}

static ligi_packed_list get_list(ligi_reader *reader, uint32_t count)
{
    return (ligi_packed_list){ligi_get_bytes(reader, (size_t)count * 8), count};
}

lig_status ligi_remote_record_salvage(const void *bytes, size_t count, ligi_remote_record *record)
{
    ligi_reader reader = {.data = bytes, .bytes = count};

    record->id = ligi_get_bytes(&reader, LIGI_REMOTE_ID_BYTES);
    uint32_t magic = ligi_get_u32(&reader);
    record->flags = ligi_get_u32(&reader);
    uint32_t named = ligi_get_u32(&reader), condemned = ligi_get_u32(&reader),
             forgotten = ligi_get_u32(&reader);
    (void)ligi_get_u32(&reader);
    record->named = get_list(&reader, named);
    record->condemned = get_list(&reader, condemned);
    record->forgotten = get_list(&reader, forgotten);
    size_t checked = reader.at;
    uint64_t check = ligi_get_u64(&reader);
    if (reader.failed || magic != MAGIC || check != ligi_hash64_plain(bytes, checked))
        return lig_fail(LIG_E_CORRUPT, "the record's description of packs is damaged");
    record->log = reader.data + reader.at;
    if (count - reader.at < LIGI_CLOG_HEADER_BYTES ||
        !ligi_clog_header_get(record->log, &record->header) ||
        record->header.bytes != count - reader.at)
        return lig_fail(LIG_E_CORRUPT, "the record's header is damaged");
    return LIG_OK;
}

lig_status ligi_remote_record_get(const void *bytes, size_t count, ligi_remote_record *record)
{
    LIG_TRY(ligi_remote_record_salvage(bytes, count, record));
    if (!ligi_clog_record_whole(record->log, &record->header))
        return lig_fail(LIG_E_CORRUPT, "an item of the record is damaged");
    return LIG_OK;
}

uint64_t ligi_packed_list_at(const ligi_packed_list *list, size_t index)
{
    ligi_reader reader = {.data = list->bytes, .bytes = list->count * 8, .at = index * 8};

    return ligi_get_u64(&reader);
}

int ligi_packed_list_has(const ligi_packed_list *list, uint64_t pack)
{
    for (size_t i = 0; i < list->count; i++)
        if (ligi_packed_list_at(list, i) == pack)
            return 1;
    return 0;
}
