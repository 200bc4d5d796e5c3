#include "evo_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void ligi_evo_name_write(char *text, uint64_t layer, uint64_t lid, uint64_t owner, int stored)
{
    snprintf(text, EVO_NAME_BYTES, "%" PRIu64 "/%" PRIu64 "@%" PRIu64 "%s", layer, lid - layer,
             owner, stored ? "" : "!");
}

/* Decimal digits up to `end`, without sign, spaces or leading zeros; NULL when that is not there.
 */
static const char *read_number(const char *text, uint64_t *value)
{
    uint64_t sum = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (sum > (UINT64_MAX - digit) / 10)
            return NULL;
        sum = sum * 10 + digit;
    }
    if (at == text || (text[0] == '0' && at - text > 1))
        return NULL;
    *value = sum;
    return at;
}

/* 1 and *entry (without its tensor) if the name has that form. */
static int read_name(const char *name, ligi_evo_entry *entry)
{
    uint64_t layer, index, owner;
    const char *at = read_number(name, &layer);
    if (at == NULL || *at != '/' || (at = read_number(at + 1, &index)) == NULL || *at != '@' ||
        (at = read_number(at + 1, &owner)) == NULL)
        return 0;
    int stored = *at != '!';
    if (!stored)
        at++;
    if (*at != '\0')
        return 0;
    *entry = (ligi_evo_entry){.lid = layer + index, .owner = owner, .stored = stored, .covered = 1};
    return 1;
}

int ligi_evo_model_read(const char *name, uint64_t *id)
{
    const char *end = read_number(name, id);
    return end != NULL && *end == '\0';
}

void ligi_evo_layers_of(const uint64_t *lids, size_t count, uint64_t *layers)
{
    for (size_t i = 0; i < count; i++)
        layers[i] = i > 0 && lids[i] == lids[i - 1] + 1 ? layers[i - 1] : lids[i];
}

static int by_lid(const void *left, const void *right)
{
    const ligi_evo_entry *a = left, *b = right;
    return a->lid < b->lid ? -1 : a->lid > b->lid;
}

lig_status ligi_evo_composition_of(const lig_model *model, ligi_evo_composition *out)
{
    ligi_evo_composition made = {.entries =
                                     calloc(model->tensor_count + 1, sizeof(ligi_evo_entry))};
    if (made.entries == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for the composition of model '%s'",
                        model->name);
    for (size_t i = 0; i < model->tensor_count; i++) {
        ligi_evo_entry *entry = &made.entries[made.count];
        if (read_name(model->tensors[i].tensor.name, entry)) {
            entry->tensor = i;
            made.count++;
        }
    }
    qsort(made.entries, made.count, sizeof *made.entries, by_lid);
    *out = made;
    return LIG_OK;
}

void ligi_evo_composition_fini(ligi_evo_composition *composition)
{
    free(composition->entries);
    *composition = (ligi_evo_composition){0};
}

const ligi_evo_entry *ligi_evo_composition_find(const ligi_evo_composition *composition,
                                                uint64_t lid)
{
    ligi_evo_entry key = {.lid = lid};
    if (composition->count == 0)
        return NULL;
    return bsearch(&key, composition->entries, composition->count, sizeof key, by_lid);
}
