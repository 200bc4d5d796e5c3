#include "params/snapshot/snapshot.h"
#include "params/snapshot/snapshot_agree.h"
#include "params/snapshot/snapshot_rows.h"
#include "params/state/node_wait.h"
#include "params/sync/sync_flush.h"
#include "params/sync/sync_round.h"
#include "params/tables/row_install.h"
#include "params/tables/table_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESET_ROWS = 1024 };

typedef struct loading {
    ligi_snapshot_call *call;
    lig_ref *ref; /* one version of the model for the check and all blocks */
    const lig_model *model;
    uint64_t first, end; /* units */
    ligi_snapshot_rows rows;
    uint8_t *column;
    size_t column_room;
} loading;

/* --- does the model fit --- */

static const lig_tensor *find_tensor(const lig_model *model, const char *name)
{
    for (size_t i = 0; i < model->tensor_count; i++)
        if (strcmp(model->tensors[i].tensor.name, name) == 0)
            return &model->tensors[i].tensor;
    return NULL;
}

static const char *shape_text(uint32_t dtype, const int64_t *shape, uint32_t ndim, char *text,
                              size_t bytes)
{
    int at = snprintf(text, bytes, "%s [", lig_dtype_name(dtype));
    for (uint32_t d = 0; d < ndim && at > 0 && (size_t)at + 30 < bytes; d++)
        at += snprintf(text + at, bytes - (size_t)at, "%s%lld", d ? ", " : "", (long long)shape[d]);
    snprintf(text + at, bytes - (size_t)at, "]");
    return text;
}

static lig_status check_column(const loading *self, const ligi_snapshot_column *column)
{
    int64_t shape[2];
    char ours[100], theirs[300];
    const char *name = self->call->model;
    uint32_t ndim = ligi_params_snapshot_column_shape(&self->call->plan, column, shape);
    const lig_tensor *tensor = find_tensor(self->model, column->name);
    if (tensor == NULL)
        return lig_fail(LIG_E_MISMATCH,
                        "model '%s' has no tensor '%s', which table '%s' needs (tables and "
                        "optimizers must be those it was saved with)",
                        name, column->name,
                        ligi_tables_name(self->call->node->tables, column->table));
    if (tensor->dtype == column->dtype && tensor->ndim == ndim &&
        memcmp(tensor->shape, shape, ndim * sizeof *shape) == 0)
        return LIG_OK;
    return lig_fail(LIG_E_MISMATCH, "tensor '%s' of model '%s' is %s, but the table has %s",
                    column->name, name,
                    shape_text(tensor->dtype, tensor->shape, tensor->ndim, theirs, sizeof theirs),
                    shape_text(column->dtype, shape, ndim, ours, sizeof ours));
}

/* The number of rows of each hashed table in the model. */
static lig_status count_rows(loading *self)
{
    const ligi_tables *tables = self->call->node->tables;
    ligi_snapshot_plan *plan = &self->call->plan;
    uint64_t rows[LIG_PARAMS_TABLES_MAX] = {0};
    if (!ligi_tables_hashed(tables))
        return LIG_OK;
    for (uint32_t i = 0; i < ligi_tables_count(tables); i++) {
        const ligi_snapshot_table *kept = &plan->table[i];
        const char *name = plan->column[kept->first_column + kept->column_count - 1].name;
        const lig_tensor *keys = find_tensor(self->model, name);
        if (keys == NULL || keys->ndim != 1)
            return lig_fail(LIG_E_MISMATCH,
                            "model '%s' has no tensor '%s' [keys] (was it saved with hashed keys?)",
                            self->call->model, name);
        rows[i] = (uint64_t)keys->shape[0];
        if (rows[i] > ligi_tables_key_count(tables, i))
            return lig_fail(
                LIG_E_MISMATCH, "table '%s' has %llu keys in model '%s', but room for only %llu",
                ligi_tables_name(tables, i), (unsigned long long)rows[i], self->call->model,
                (unsigned long long)ligi_tables_key_count(tables, i));
    }
    return ligi_params_snapshot_plan_divide(plan, rows);
}

static int is_column(const ligi_snapshot_plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->column_count; i++)
        if (strcmp(plan->column[i].name, name) == 0)
            return 1;
    return 0;
}

static lig_status check_columns(const loading *self)
{
    const ligi_snapshot_plan *plan = &self->call->plan;
    for (uint32_t i = 0; i < plan->column_count; i++)
        LIG_TRY(check_column(self, &plan->column[i]));
    for (size_t i = 0; i < self->model->tensor_count; i++) {
        const char *name = self->model->tensors[i].tensor.name;
        if (!is_column(plan, name))
            return lig_fail(LIG_E_MISMATCH,
                            "tensor '%s' of model '%s' belongs to no table here (tables and "
                            "optimizers must be those it was saved with)",
                            name, self->call->model);
    }
    return LIG_OK;
}

/* --- reading --- */

static lig_status read_box(loading *self, const ligi_snapshot_column *column, uint64_t number,
                           void *out)
{
    int64_t start[2], shape[2], whole[2];
    lig_slice slices[2];
    uint32_t ndim = ligi_params_snapshot_column_shape(&self->call->plan, column, whole);
    ligi_params_snapshot_column_box(&self->call->plan, column, number, start, shape);
    for (uint32_t d = 0; d < ndim; d++)
        slices[d] = (lig_slice){start[d], 1, shape[d]};
    uint64_t elements = (uint64_t)shape[0] * (ndim == 2 ? (uint64_t)shape[1] : 1);
    lig_read read = {.into = {.name = column->name,
                              .data = out,
                              .bytes = elements * column->element_bytes,
                              .shape = shape,
                              .ndim = ndim,
                              .dtype = (uint16_t)column->dtype},
                     .slices = slices};
    return lig_ref_read(self->ref, &read, 1, 0);
}

static lig_status take_number(ligi_snapshot_rows *rows, const ligi_snapshot_column *column,
                              uint32_t index, int64_t number)
{
    const ligi_tables *tables = rows->plan->tables;
    if (column->kind == LIGI_COLUMN_LENGTHS) {
        if (number == ligi_params_snapshot_rows_length(rows, index))
            return LIG_OK;
        return lig_fail(LIG_E_MISMATCH,
                        "key %lld of table '%s' has length %lld in the model, but %u here",
                        (long long)(rows->keys[index] - ligi_tables_offset(tables, rows->table)),
                        ligi_tables_name(tables, rows->table), (long long)number,
                        ligi_params_snapshot_rows_length(rows, index));
    }
    int64_t offset = ligi_tables_offset(tables, rows->table);
    if (number < 0 || number > INT64_MAX - offset ||
        ligi_tables_table_of_key(tables, offset + number) != (int)rows->table)
        return lig_fail(LIG_E_MISMATCH, "%lld is not a key of table '%s'", (long long)number,
                        ligi_tables_name(tables, rows->table));
    rows->keys[index] = offset + number;
    return LIG_OK;
}

static lig_status place_column(ligi_snapshot_rows *rows, const ligi_snapshot_column *column,
                               const uint8_t *from)
{
    for (uint32_t i = 0; i < rows->count; i++) {
        uint32_t length = ligi_params_snapshot_rows_length(rows, i);
        size_t bytes = ligi_params_snapshot_column_bytes(column, length);
        if (column->kind >= LIGI_COLUMN_LENGTHS) {
            int64_t number;
            memcpy(&number, from, sizeof number);
            LIG_TRY(take_number(rows, column, i, number));
        } else {
            memcpy(ligi_params_snapshot_rows_body(rows, i) +
                       ligi_params_snapshot_column_at(rows->plan, column, length),
                   from, bytes);
        }
        from += bytes;
    }
    return LIG_OK;
}

/* Reads the columns of one unit: all, or only those that identify its rows. */
static lig_status read_unit(loading *self, uint64_t unit, int all)
{
    const ligi_snapshot_plan *plan = &self->call->plan;
    ligi_snapshot_rows *rows = &self->rows;
    LIG_TRY(ligi_params_snapshot_rows_begin(rows, self->call, unit));
    const ligi_snapshot_table *kept = &plan->table[rows->table];
    if (all)
        memset(rows->bodies, 0, rows->offsets[rows->count]);
    for (uint32_t i = 0; i < kept->column_count && rows->count; i++) {
        const ligi_snapshot_column *column = &plan->column[kept->first_column + i];
        size_t bytes = (size_t)rows->count * 8 + rows->offsets[rows->count];
        if (!all && column->kind < LIGI_COLUMN_LENGTHS)
            continue;
        LIG_TRY(ligi_grow(&self->column, &self->column_room, bytes, 1, "a block"));
        LIG_TRY(read_box(self, column, rows->number, self->column));
        LIG_TRY(place_column(rows, column, self->column));
    }
    return LIG_OK;
}

/* --- the steps --- */

/* A load must not create a store. */
static lig_status open_store(ligi_snapshot_call *call)
{
    size_t bytes = strlen(call->uri) + 16;
    char *uri = NULL;
    const char *query = strchr(call->uri, '?');
    if (query && strstr(query, "mode="))
        return lig_store_open(&call->store, call->uri);
    LIG_TRY(ligi_alloc(&uri, bytes, "a place"));
    snprintf(uri, bytes, "%s%cmode=r", call->uri, query ? '&' : '?');
    lig_status status = lig_store_open(&call->store, uri);
    free(uri);
    return status;
}

static lig_status check(loading *self)
{
    ligi_snapshot_call *call = self->call;
    if (call->uri == NULL || call->model == NULL)
        return lig_fail(LIG_E_INVALID, "lig_params_load needs a store URI and a model name");
    LIG_TRY(ligi_params_snapshot_plan_init(&call->plan, call->node->tables));
    LIG_TRY(open_store(call));
    LIG_TRY(lig_store_resolve(call->store, call->model, &self->ref));
    self->model = lig_ref_model(self->ref);
    call->version = self->model->id;
    LIG_TRY(count_rows(self));
    LIG_TRY(check_columns(self));
    ligi_params_snapshot_plan_share(&call->plan, call->node->rank, call->node->node_count,
                                    &self->first, &self->end);
    for (uint64_t unit = self->first; unit < self->end; unit++)
        LIG_TRY(read_unit(self, unit, 0));
    return LIG_OK;
}

static lig_status settle(ligi_snapshot_call *call)
{
    if (ligi_node_alone(call->node))
        return LIG_OK;
    return ligi_sync_settle(call->node, ligi_time_left(call->deadline_ns));
}

/* Hashed keys that the model lacks keep their initial values. */
static lig_status reset(ligi_snapshot_call *call)
{
    ligi_tables *tables = call->node->tables;
    uint8_t *body = NULL;
    if (!ligi_tables_hashed(tables))
        return LIG_OK;
    LIG_TRY(ligi_alloc(&body, ligi_tables_body_bytes_max(tables), "a row"));
    uint64_t count = ligi_tables_entry_count(tables);
    for (uint64_t at = 0; at < count; at += RESET_ROWS) {
        ligi_node_lock(call->node);
        for (uint64_t i = at; i < count && i < at + RESET_ROWS; i++) {
            ligi_entry entry = (ligi_entry)i;
            ligi_tables_first_body(tables, entry, body);
            if (ligi_tables_set_body(tables, entry, body) == 1)
                ligi_sync_noted(call->node, NULL, &entry, 1);
        }
        ligi_node_unlock(call->node);
    }
    free(body);
    return LIG_OK;
}

static lig_status fill(loading *self)
{
    for (uint64_t unit = self->first; unit < self->end; unit++) {
        LIG_TRY(read_unit(self, unit, 1));
        LIG_TRY(ligi_params_snapshot_rows_scatter(&self->rows, self->call));
    }
    return LIG_OK;
}

static lig_status load(loading *self)
{
    ligi_snapshot_call *call = self->call;
    LIG_TRY(ligi_params_snapshot_agree_call(call, check(self), 1));
    LIG_TRY(ligi_params_snapshot_agree(call, settle(call), NULL));
    LIG_TRY(ligi_params_snapshot_agree(call, reset(call), NULL));
    LIG_TRY(ligi_params_snapshot_agree(call, fill(self), NULL));
    return ligi_params_snapshot_agree(call, settle(call), NULL);
}

lig_status lig_params_load(lig_params *params, const char *uri, const char *model,
                           int64_t timeout_ns)
{
    ligi_snapshot_call call = {.node = params, .verb = "load", .uri = uri, .model = model};
    loading self = {.call = &call};
    LIG_TRY(ligi_session_check(&params->session));
    LIG_TRY(ligi_params_snapshot_begin(&call, timeout_ns));
    lig_status status = ligi_params_snapshot_check(&call);
    if (status == LIG_OK)
        status = load(&self);
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    ligi_params_snapshot_rows_fini(&self.rows);
    free(self.column);
    lig_ref_release(self.ref);
    ligi_params_snapshot_end(&call);
    return status == LIG_OK ? LIG_OK : ligi_failure_publish(&failure);
}
