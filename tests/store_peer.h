/* A process that works on a store by command (peer.h), for tests that kill it.
 *
 * The bytes of a tensor follow from its name, "t<seed>": whoever finds a model knows what it must
 * hold. Models whose names begin with "extra" are counted, all others listed. */
#ifndef STORE_PEER_H
#define STORE_PEER_H

#include "peer.h"
#include "store_scene.h"

enum { STORE_PEER_TENSORS = 4, STORE_PEER_FLOATS = 1 << 18 };

typedef struct store_peer {
    lig_store *store;
    lig_part *part;
    int fd;
    float data[STORE_PEER_TENSORS][STORE_PEER_FLOATS];
    float found[STORE_PEER_FLOATS];
} store_peer;

typedef struct peer_model {  /* what a save is asked for */
    char name[32], flags[8]; /* r: replace, a: in the background */
    unsigned seed, count;
    int64_t floats;
} peer_model;

static inline lig_status peer_save(store_peer *self, const peer_model *model)
{
    lig_tensor tensors[STORE_PEER_TENSORS];
    char names[STORE_PEER_TENSORS][16];
    int64_t floats = model->floats;
    for (unsigned i = 0; i < model->count; i++) {
        scene_fill(self->data[i], (size_t)floats * 4, model->seed + i);
        snprintf(names[i], sizeof names[i], "t%u", model->seed + i);
        tensors[i] = scene_tensor(names[i], self->data[i], &floats);
    }
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = strchr(model->flags, 'r') ? LIG_SAVE_REPLACE : 0;
    if (strchr(model->flags, 'a') == NULL)
        return lig_store_save(self->store, model->name, tensors, model->count, &options);
    lig_ticket *ticket;
    lig_status status =
        lig_store_save_start(self->store, model->name, tensors, model->count, &options, &ticket);
    if (status == LIG_OK) {
        status = lig_ticket_wait(ticket, -1);
        lig_ticket_destroy(ticket);
    }
    return status;
}

/* Half of the tensor t<seed>. */
static inline lig_status peer_part(store_peer *self, const peer_model *model, int half,
                                   lig_part **part)
{
    char name[16];
    int64_t start = half ? model->floats / 2 : 0;
    int64_t floats = half ? model->floats - start : model->floats / 2;
    lig_box box = {&model->floats, &start, 0};
    snprintf(name, sizeof name, "t%u", model->seed);
    scene_fill(self->data[0], (size_t)model->floats * 4, model->seed);
    lig_tensor tensor = scene_tensor(name, self->data[0] + start, &floats);
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    options.boxes = &box;
    options.part = part;
    return lig_store_save(self->store, model->name, &tensor, 1, &options);
}

static inline lig_status peer_join(store_peer *self, const peer_model *model)
{
    lig_part *parts[2] = {NULL, NULL};
    lig_part_data data[2];
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    lig_status status = LIG_OK;
    for (int i = 0; i < 2 && status == LIG_OK; i++) {
        status = peer_part(self, model, i, &parts[i]);
        if (status == LIG_OK)
            status = lig_part_bytes(parts[i], &data[i].data, &data[i].bytes);
    }
    if (status == LIG_OK)
        status = lig_store_join(self->store, model->name, data, 2, &options);
    for (int i = 0; i < 2; i++)
        lig_part_close(parts[i], self->store);
    return status;
}

/* --- looking --- */

static inline lig_status peer_compare(store_peer *self, const char *name, char *text, size_t bytes)
{
    lig_model *model;
    lig_status status = lig_store_model(self->store, name, &model);
    if (status != LIG_OK)
        return status;
    int used = snprintf(text, bytes, " %s{", name);
    for (size_t i = 0; i < model->tensor_count && status == LIG_OK; i++) {
        lig_tensor tensor = model->tensors[i].tensor;
        tensor.data = self->found;
        scene_fill(self->data[0], tensor.bytes, strtoul(tensor.name + 1, NULL, 10));
        status = lig_store_load(self->store, name, &tensor, 1);
        int same = status == LIG_OK && memcmp(self->found, self->data[0], tensor.bytes) == 0;
        used +=
            snprintf(text + used, bytes - (size_t)used, same ? "%s " : "%s DIFFERS ", tensor.name);
    }
    for (size_t i = 0; i < model->metric_count; i++)
        used += snprintf(text + used, bytes - (size_t)used, "%s=%g ", model->metrics[i].name,
                         model->metrics[i].value);
    snprintf(text + used, bytes - (size_t)used, "}");
    lig_model_destroy(model);
    return status;
}

/* All tensors in one load: "ok", or "ok DIFFERS" when one is not what its name says. */
static inline lig_status peer_load(store_peer *self, const char *name, char *answer)
{
    lig_model *model;
    lig_tensor tensors[STORE_PEER_TENSORS];
    lig_status status = lig_store_model(self->store, name, &model);
    if (status != LIG_OK)
        return status;
    size_t count = model->tensor_count < STORE_PEER_TENSORS ? model->tensor_count : 0;
    for (size_t i = 0; i < count; i++) {
        tensors[i] = model->tensors[i].tensor;
        tensors[i].data = self->data[i];
    }
    status = lig_store_load(self->store, name, tensors, count);
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        scene_fill(self->found, tensors[i].bytes, strtoul(tensors[i].name + 1, NULL, 10));
        if (memcmp(self->found, tensors[i].data, tensors[i].bytes) != 0)
            snprintf(answer, PEER_TEXT_BYTES, "ok DIFFERS");
    }
    lig_model_destroy(model);
    return status;
}

static inline lig_status peer_aliases(store_peer *self, char *text, size_t bytes)
{
    char *alias, *model;
    size_t used = 0;
    lig_status status;
    for (size_t i = 0; (status = lig_store_alias_at(self->store, i, &alias, &model)) == LIG_OK;
         i++) {
        used += (size_t)snprintf(text + used, bytes - used, " %s>%s", alias, model);
        lig_text_destroy(alias);
        lig_text_destroy(model);
    }
    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

/* "ok <models and aliases> +<count of the extra ones>" */
static inline lig_status peer_look(store_peer *self, char *answer)
{
    lig_query query = LIG_QUERY_INIT;
    lig_model **models;
    size_t count, used = 2, extra = 0;
    query.order = "name";
    lig_status status = lig_store_models(self->store, &query, &models, &count);
    if (status != LIG_OK)
        return status;
    for (size_t i = 0; i < count && status == LIG_OK; i++) {
        char one[512];
        status = peer_compare(self, models[i]->name, one, sizeof one);
        int listed = strncmp(models[i]->name, "extra", 5) != 0 || strstr(one, "DIFFERS") != NULL;
        extra += !listed;
        if (status == LIG_OK && listed)
            used += (size_t)snprintf(answer + used, PEER_TEXT_BYTES - used, "%s", one);
    }
    lig_models_destroy(models, count);
    if (status == LIG_OK)
        status = peer_aliases(self, answer + used, PEER_TEXT_BYTES - used);
    if (status == LIG_OK)
        snprintf(answer + strlen(answer), PEER_TEXT_BYTES - strlen(answer), " +%zu", extra);
    return status;
}

static inline lig_status peer_check(store_peer *self, uint32_t flags, char *answer)
{
    lig_report *report;
    lig_status status = lig_store_check(self->store, flags, &report);
    if (status != LIG_OK)
        return status;
    if (report->problem_count)
        snprintf(answer, PEER_TEXT_BYTES, "error: problem: %s", report->problems[0]);
    lig_report_destroy(report);
    return LIG_OK;
}

static inline lig_status peer_compact(store_peer *self)
{
    lig_report *report;
    lig_status status = lig_store_compact(self->store, &report);
    if (status == LIG_OK)
        lig_report_destroy(report);
    return status;
}

/* --- commands --- */

/* Replaces the model again and again, and says each seed when it is saved. Ends by a kill. */
static inline lig_status peer_churn(store_peer *self, peer_model *model)
{
    lig_status status;
    while ((status = peer_save(self, model)) == LIG_OK) {
        char text[32];
        int used = snprintf(text, sizeof text, "%u", model->seed);
        if (send(self->fd, text, (size_t)used + 1, MSG_NOSIGNAL) < 0)
            _exit(1);
        model->seed++;
    }
    return status;
}

static inline void peer_close(store_peer *self)
{
    lig_part_close(self->part, self->store);
    lig_store_close(self->store);
    self->part = NULL;
    self->store = NULL;
}

static inline lig_status peer_open(store_peer *self, const char *uri)
{
    peer_close(self);
    return lig_store_open(&self->store, uri);
}

static inline lig_status peer_rename(store_peer *self, const char *from, const char *to)
{
    lig_metric metric = {"renamed", 1};
    lig_update update = LIG_UPDATE_INIT;
    update.metrics = &metric;
    update.metric_count = 1;
    update.name = to;
    return lig_store_update(self->store, from, &update);
}

static inline lig_status peer_run(store_peer *self, const char *verb, const char *rest,
                                  char *answer)
{
    peer_model model = {0};
    char first[256] = "", second[256] = "";
    sscanf(rest, "%31s %7s %u %u %ld", model.name, model.flags, &model.seed, &model.count,
           &model.floats);
    sscanf(rest, "%255s %255s", first, second);
    if (strcmp(verb, "open") == 0)
        return peer_open(self, first);
    if (strcmp(verb, "save") == 0)
        return peer_save(self, &model);
    if (strcmp(verb, "churn") == 0)
        return peer_churn(self, &model);
    if (strcmp(verb, "join") == 0)
        return peer_join(self, &model);
    if (strcmp(verb, "part") == 0)
        return peer_part(self, &model, 0, &self->part);
    if (strcmp(verb, "retire") == 0)
        return lig_store_retire(self->store, first);
    if (strcmp(verb, "alias") == 0)
        return lig_store_alias(self->store, first, second);
    if (strcmp(verb, "rename") == 0)
        return peer_rename(self, first, second);
    if (strcmp(verb, "compact") == 0)
        return peer_compact(self);
    if (strcmp(verb, "check") == 0)
        return peer_check(self, 0, answer);
    if (strcmp(verb, "repair") == 0)
        return peer_check(self, LIG_CHECK_REPAIR, answer);
    if (strcmp(verb, "look") == 0)
        return peer_look(self, answer);
    if (strcmp(verb, "load") == 0)
        return peer_load(self, first, answer);
    if (strcmp(verb, "describe") == 0)
        return lig_store_describe(self->store, answer, PEER_TEXT_BYTES);
    peer_close(self);
    return strcmp(verb, "close") == 0 ? LIG_OK : LIG_E_INVALID;
}

static inline void peer_act(void *context, char *command, char *answer)
{
    char verb[16] = "";
    int at = 0;
    sscanf(command, "%15s %n", verb, &at);
    lig_status status = peer_run(context, verb, command + at, answer);
    if (status != LIG_OK)
        snprintf(answer, PEER_TEXT_BYTES, "error: %s: %s: %s", verb, lig_status_name(status),
                 lig_error_text());
}

/* A hook for tests that make warnings by the hundred. */
static inline void store_peer_quiet(void *context, lig_log_level level, const char *text)
{
    (void)context, (void)level, (void)text;
}

/* The program's main in that role. */
static inline int store_peer_main(int fd)
{
    store_peer *self = calloc(1, sizeof *self);
    if (self == NULL)
        return 1;
    self->fd = fd;
    peer_serve(fd, peer_act, self);
    peer_close(self);
    free(self);
    return 0;
}

#endif
