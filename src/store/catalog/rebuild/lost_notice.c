#include "store/catalog/rebuild/lost_notice.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAMES_BYTES 320 /* of a notice; more names are counted */

static void append(char *text, size_t room, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, room - used, format, arguments);
    va_end(arguments);
}

/* "'a', 'b' and 3 more"; counts the models. */
static size_t name_models(const ligi_footers *footers, const void *secret, char *text)
{
    size_t named = 0, more = 0;
    for (size_t i = 0; i < ligi_footers_count(footers); i++) {
        lig_catalog_item item = ligi_footers_item(footers, i);
        ligi_record record = {0};
        if (item.key_bytes == 0 || *(const uint8_t *)item.key != LIGI_TABLE_MODEL)
            continue;
        if (ligi_record_get(&item, secret, &record) == LIG_OK &&
            strlen(text) + strlen(record.about.name) + 4 < NAMES_BYTES) {
            append(text, NAMES_BYTES, "%s'%s'", named ? ", " : "", record.about.name);
            named++;
        } else {
            more++;
        }
        ligi_record_fini(&record);
    }
    if (more)
        append(text, LIGI_NOTICE_BYTES, "%s%zu more", named ? " and " : "", more);
    return named + more;
}

void ligi_notice_lost(const ligi_footers *footers, const void *secret, uint64_t version,
                      char text[LIGI_NOTICE_BYTES])
{
    char names[LIGI_NOTICE_BYTES] = "", commits[48] = "";
    size_t count = footers ? name_models(footers, secret, names) : 0;
    if (version)
        snprintf(commits, sizeof commits, " up to version %llu", (unsigned long long)version);
    snprintf(text, LIGI_NOTICE_BYTES, "the log of commits%s was lost, and with it ", commits);
    append(text, LIGI_NOTICE_BYTES, "models below 64 KiB, aliases and later changes; ");
    if (count)
        append(text, LIGI_NOTICE_BYTES, "restored from packs: %.*s", NAMES_BYTES + 30, names);
    else
        append(text, LIGI_NOTICE_BYTES, "there was no pack to restore a model from");
}

void ligi_notice_put(ligi_writer *value, ligi_catalog_key *key, const char *text,
                     const void *secret)
{
    *key = ligi_catalog_key_id(LIGI_TABLE_NOTICE, 1);
    ligi_value_begin(value);
    ligi_put_text(value, text);
    ligi_value_end(value, key, secret);
}

lig_status ligi_notice_get(const lig_catalog_item *item, const void *secret, const char **text)
{
    ligi_reader reader;
    LIG_TRY(ligi_value_open(item, secret, &reader));
    *text = ligi_get_text(&reader, LIGI_NOTICE_BYTES);
    return reader.failed ? lig_fail(LIG_E_CORRUPT, "the catalog contains a damaged notice")
                         : LIG_OK;
}
