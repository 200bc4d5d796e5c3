#include "params/snapshot/snapshot.h"
#include "params/snapshot/snapshot_agree.h"
#include "params/snapshot/snapshot_rows.h"
#include "params/snapshot/snapshot_serve.h"
#include "params/state/node_wait.h"
#include "params/sync/sync_flush.h"
#include "params/tables/table_info.h"

#include <stdlib.h>
#include <string.h>

/* Double buffering: one is written while the other is filled. */
enum { STAGES = 2, NUMBERS = 6 };

typedef struct stage {
    ligi_snapshot_rows rows;
    uint8_t *columns;
    size_t room;
    size_t end; /* may be used again when the tensors before this one are written */
} stage;

typedef struct saving {
    ligi_snapshot_call *call;
    uint64_t first, end; /* units */
    lig_tensor *tensors;
    lig_box *boxes;
    int64_t *numbers; /* shapes and starts of all of them */
    size_t count, offered;
    lig_save *save;
    lig_part *part;
    stage stages[STAGES];
} saving;

/* --- tensors to write --- */

/* A table without rows has one empty box, so that its tensors exist. */
static int is_written(const ligi_snapshot_plan *plan, uint64_t unit, int *table, uint64_t *number)
{
    *table = ligi_params_snapshot_plan_unit(plan, unit, number);
    const ligi_snapshot_table *kept = &plan->table[*table];
    return kept->rows[*number + 1] > kept->rows[*number] ||
           (*number == 0 && ligi_params_snapshot_row_count(kept) == 0);
}

static void describe_box(saving *self, const ligi_snapshot_column *column, uint64_t number)
{
    const ligi_snapshot_plan *plan = &self->call->plan;
    int64_t *numbers = self->numbers + self->count * NUMBERS;
    int64_t *whole = numbers, *start = numbers + 2, *shape = numbers + 4;
    uint32_t ndim = ligi_params_snapshot_column_shape(plan, column, whole);
    ligi_params_snapshot_column_box(plan, column, number, start, shape);
    uint64_t elements = (uint64_t)shape[0] * (ndim == 2 ? (uint64_t)shape[1] : 1);
    self->tensors[self->count] = (lig_tensor){.name = column->name,
                                              .bytes = elements * column->element_bytes,
                                              .shape = shape,
                                              .ndim = ndim,
                                              .dtype = (uint16_t)column->dtype};
    self->boxes[self->count++] =
        (lig_box){.shape = whole, .start = start, .order = (uint64_t)(column - plan->column)};
}

static lig_status describe(saving *self)
{
    const ligi_snapshot_plan *plan = &self->call->plan;
    size_t most = (self->end - self->first) * (LIGI_COLUMNS_MAX + 1);
    LIG_TRY(ligi_calloc(&self->tensors, most, sizeof *self->tensors, "a save"));
    LIG_TRY(ligi_calloc(&self->boxes, most, sizeof *self->boxes, "a save"));
    LIG_TRY(ligi_calloc(&self->numbers, most * NUMBERS, sizeof *self->numbers, "a save"));
    for (uint64_t unit = self->first; unit < self->end; unit++) {
        uint64_t number;
        int table;
        if (!is_written(plan, unit, &table, &number))
            continue;
        const ligi_snapshot_table *kept = &plan->table[table];
        for (uint32_t i = 0; i < kept->column_count; i++)
            describe_box(self, &plan->column[kept->first_column + i], number);
    }
    return LIG_OK;
}

/* --- writing --- */

static lig_status wait_for_stage(saving *self, const stage *at)
{
    uint64_t done = 0;
    if (at->end == 0)
        return LIG_OK;
    lig_status status =
        lig_save_progress(self->save, at->end - 1, ligi_time_left(self->call->deadline_ns), &done);
    if (status == LIG_E_TIMEOUT)
        return lig_fail(status, "save '%s': timeout while writing", self->call->model);
    return status;
}

static int64_t plain_number(const ligi_snapshot_rows *rows, const ligi_snapshot_column *column,
                            uint32_t index)
{
    if (column->kind == LIGI_COLUMN_LENGTHS)
        return ligi_params_snapshot_rows_length(rows, index);
    return rows->keys[rows->order[index]] - ligi_tables_offset(rows->plan->tables, rows->table);
}

/* Rows without state have the layout of the model. */
static int is_all(const ligi_snapshot_rows *rows, const ligi_snapshot_column *column)
{
    const ligi_snapshot_table *kept = &rows->plan->table[rows->table];
    return column->kind == LIGI_COLUMN_VALUES && !ligi_tables_hashed(rows->plan->tables) &&
           ligi_tables_optimizer(rows->plan->tables, rows->table)->kind <= LIG_PARAMS_SGD &&
           kept->column_count <= 2;
}

static void extract(const ligi_snapshot_rows *rows, const ligi_snapshot_column *column,
                    uint8_t *out)
{
    for (uint32_t i = 0; i < rows->count; i++) {
        uint32_t length = ligi_params_snapshot_rows_length(rows, i);
        size_t bytes = ligi_params_snapshot_column_bytes(column, length);
        if (column->kind >= LIGI_COLUMN_LENGTHS) {
            int64_t number = plain_number(rows, column, i);
            memcpy(out, &number, sizeof number);
        } else {
            memcpy(out,
                   ligi_params_snapshot_rows_body(rows, i) +
                       ligi_params_snapshot_column_at(rows->plan, column, length),
                   bytes);
        }
        out += bytes;
    }
}

static lig_status offer_columns(saving *self, stage *at, int table)
{
    const ligi_snapshot_plan *plan = &self->call->plan;
    const ligi_snapshot_table *kept = &plan->table[table];
    size_t bytes = 0, used = 0;
    for (uint32_t i = 0; i < kept->column_count; i++)
        bytes += self->tensors[self->offered + i].bytes;
    LIG_TRY(ligi_grow(&at->columns, &at->room, bytes + 1, 1, "a block"));
    for (uint32_t i = 0; i < kept->column_count; i++) {
        const ligi_snapshot_column *column = &plan->column[kept->first_column + i];
        uint8_t *data = is_all(&at->rows, column) ? at->rows.bodies : at->columns + used;
        if (data != at->rows.bodies)
            extract(&at->rows, column, data);
        used += self->tensors[self->offered].bytes;
        self->offered++;
        LIG_TRY(lig_save_offer(self->save, data, NULL));
    }
    at->end = self->offered;
    return LIG_OK;
}

static lig_status write_units(saving *self)
{
    ligi_snapshot_call *call = self->call;
    size_t turn = 0;
    for (uint64_t unit = self->first; unit < self->end; unit++) {
        stage *at = &self->stages[turn];
        uint64_t number;
        int table;
        if (!is_written(&call->plan, unit, &table, &number))
            continue;
        LIG_TRY(wait_for_stage(self, at));
        LIG_TRY(ligi_params_snapshot_rows_begin(&at->rows, call, unit));
        LIG_TRY(ligi_params_snapshot_rows_gather(&at->rows, call));
        LIG_TRY(offer_columns(self, at, table));
        turn = (turn + 1) % STAGES;
    }
    return LIG_OK;
}

static lig_status write_part(saving *self)
{
    ligi_snapshot_call *call = self->call;
    lig_save_options options = LIG_SAVE_INIT;
    lig_ticket *ticket = NULL;
    ligi_params_snapshot_plan_share(&call->plan, call->node->rank, call->node->node_count,
                                    &self->first, &self->end);
    LIG_TRY(describe(self));
    if (self->count == 0)
        return LIG_OK;
    options.flags = LIG_SAVE_REPLACE;
    options.boxes = self->boxes;
    options.part = &self->part;
    LIG_TRY(lig_save_begin(&self->save, call->store, call->model, self->tensors, self->count,
                           &options));
    LIG_TRY(write_units(self));
    LIG_TRY(lig_save_commit(self->save, &ticket));
    self->save = NULL;
    lig_status status = lig_ticket_wait(ticket, ligi_time_left(call->deadline_ns));
    if (status == LIG_E_TIMEOUT) {
        lig_ticket_cancel(ticket);
        status = lig_fail(status, "save '%s': timeout while writing", call->model);
    }
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    lig_ticket_destroy(ticket);
    return status == LIG_OK ? LIG_OK : ligi_failure_publish(&failure);
}

static void fini(saving *self)
{
    lig_save_abort(self->save);
    for (size_t i = 0; i < STAGES; i++) {
        ligi_params_snapshot_rows_fini(&self->stages[i].rows);
        free(self->stages[i].columns);
    }
    free(self->tensors);
    free(self->boxes);
    free(self->numbers);
    lig_part_close(self->part, self->call->store);
}

/* --- decisions of node 0 --- */

static lig_status sum_counts(void *context, const lig_part_data *reports, ligi_writer *answer)
{
    const ligi_snapshot_call *call = context;
    uint64_t units = call->plan.unit_count;
    for (uint32_t i = 0; i < call->node->node_count; i++)
        if (reports[i].bytes != units * 8)
            return lig_fail(LIG_E_CORRUPT, "node %u counted a different number of blocks", i);
    for (uint64_t unit = 0; unit < units; unit++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < call->node->node_count; i++) {
            uint64_t count;
            memcpy(&count, (const uint8_t *)reports[i].data + unit * 8, sizeof count);
            sum += count;
        }
        ligi_put_u64(answer, sum);
    }
    return answer->status;
}

static lig_status join(void *context, const lig_part_data *reports, ligi_writer *answer)
{
    const ligi_snapshot_call *call = context;
    lig_save_options options = LIG_SAVE_INIT;
    lig_part_data *parts;
    size_t count = 0;
    (void)answer;
    options.flags = LIG_SAVE_REPLACE;
    options.meta = "{\"ligament.params\": 1}";
    LIG_TRY(ligi_calloc(&parts, call->node->node_count, sizeof *parts, "a save"));
    for (uint32_t i = 0; i < call->node->node_count; i++)
        if (reports[i].bytes)
            parts[count++] = reports[i];
    lig_status status = lig_store_join(call->store, call->model, parts, count, &options);
    free(parts);
    return status;
}

/* --- the call --- */

static lig_status prepare(ligi_snapshot_call *call)
{
    if (call->uri == NULL || call->model == NULL)
        return lig_fail(LIG_E_INVALID, "lig_params_save needs a store URI and a model name");
    LIG_TRY(ligi_params_snapshot_plan_init(&call->plan, call->node->tables));
    return lig_store_open(&call->store, call->uri);
}

static lig_status settle(ligi_snapshot_call *call)
{
    if (ligi_node_alone(call->node))
        return LIG_OK;
    return ligi_sync_settle(call->node, ligi_time_left(call->deadline_ns));
}

/* After this all pushes are applied, and the number of hashed keys is known. */
static lig_status come_to_rest(ligi_snapshot_call *call)
{
    uint64_t *counts = NULL, units = call->plan.unit_count;
    LIG_TRY(ligi_params_snapshot_agree(call, settle(call), NULL));
    if (!ligi_tables_hashed(call->node->tables))
        return LIG_OK;
    lig_status status = ligi_calloc(&counts, units, sizeof *counts, "blocks");
    if (status == LIG_OK)
        status = ligi_params_snapshot_count(call, counts);
    ligi_agreement agreement = {counts, units * 8, sum_counts, call};
    status = ligi_params_snapshot_agree(call, status, &agreement);
    free(counts);
    LIG_TRY(status);
    if (call->snapshot->answer.bytes != units * 8)
        return lig_fail(LIG_E_CORRUPT, "node 0 counted a different number of blocks");
    ligi_params_snapshot_plan_count(&call->plan,
                                    (const uint64_t *)(const void *)call->snapshot->answer.data);
    return LIG_OK;
}

static lig_status save(ligi_snapshot_call *call)
{
    saving self = {.call = call};
    const void *data = NULL;
    size_t bytes = 0;
    LIG_TRY(ligi_params_snapshot_agree_call(call, prepare(call), 0));
    LIG_TRY(come_to_rest(call));
    lig_status status = write_part(&self);
    if (status == LIG_OK && self.part)
        status = lig_part_bytes(self.part, &data, &bytes);
    ligi_agreement agreement = {data, bytes, join, call};
    status = ligi_params_snapshot_agree(call, status, &agreement);
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    fini(&self);
    return status == LIG_OK ? LIG_OK : ligi_failure_publish(&failure);
}

lig_status lig_params_save(lig_params *params, const char *uri, const char *model,
                           int64_t timeout_ns)
{
    ligi_snapshot_call call = {.node = params, .verb = "save", .uri = uri, .model = model};
    LIG_TRY(ligi_session_check(&params->session));
    LIG_TRY(ligi_params_snapshot_begin(&call, timeout_ns));
    lig_status status = ligi_params_snapshot_check(&call);
    if (status == LIG_OK)
        status = save(&call);
    ligi_failure failure;
    ligi_failure_take(&failure, status);
    ligi_params_snapshot_end(&call);
    return status == LIG_OK ? LIG_OK : ligi_failure_publish(&failure);
}
