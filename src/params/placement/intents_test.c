#include "params/placement/intents.h"

#include "base/test.h"
#include "params/sampling/draw.h"

#include <pthread.h>
#include <stdlib.h>

enum { WORKERS = 3, ENTRIES = 40, STEPS = 4000, SEGMENTS = 4096 };

/* --- interests of nodes, compared with a table of ends --- */

enum { OPEN = 12 };

typedef struct span { /* an ending, and the entries added with it */
    uint32_t number, worker;
    int64_t end;
} span;

/* Whether a worker is interested, determined by walking all open endings. */
static int is_wanted(const span *spans, const uint8_t *has)
{
    for (int i = 0; i < OPEN; i++)
        if (spans[i].number != 0 && has[i])
            return 1;
    return 0;
}

static void close_span(ligi_interests *interests, span *one, uint8_t has[ENTRIES][OPEN], int i)
{
    ligi_ending *ending = ligi_interests_at(interests, one->number);

    assert_non_null(ending);
    assert_int_equal(ending->worker, one->worker);
    assert_true(ending->end == one->end);
    ligi_interests_close(interests, ending);
    assert_int_equal(one->number, 0);
    for (int e = 0; e < ENTRIES; e++)
        has[e][i] = 0;
}

/* The later end of a worker replaces the earlier one. Ends are closed in any order across workers,
 * and in clock order within one worker. */
static int may_close(const span *spans, int which)
{
    for (int i = 0; i < OPEN; i++)
        if (spans[i].number != 0 && spans[i].worker == spans[which].worker &&
            spans[i].end < spans[which].end)
            return 0;
    return 1;
}

static void renumber_all(ligi_interests *interests, uint32_t *own)
{
    for (int e = 0; e < ENTRIES; e++)
        ligi_interests_renumber(interests, &own[e]);
    ligi_interests_renew(interests);
}

static void interests_are_the_latest_ends(void **state)
{
    ligi_interests interests = {0};
    uint32_t own[ENTRIES] = {0};
    static uint8_t has[ENTRIES][OPEN];
    span spans[OPEN] = {0};
    ligi_rng rng;

    (void)state;
    ligi_rng_init(&rng, 7, 0, 0);
    for (int step = 0; step < 40000; step++) {
        uint32_t e = (uint32_t)ligi_rng_below(&rng, ENTRIES);
        int i = (int)ligi_rng_below(&rng, OPEN), gained;
        if (spans[i].number == 0) {
            spans[i].worker = (uint32_t)ligi_rng_below(&rng, WORKERS);
            spans[i].end = (int64_t)ligi_rng_below(&rng, 100) * OPEN + i;
            assert_ok(
                ligi_interests_open(&interests, spans[i].worker, spans[i].end, &spans[i].number));
        } else if (ligi_rng_below(&rng, 8) == 0 && may_close(spans, i)) {
            close_span(&interests, &spans[i], has, i);
        } else {
            int before = is_wanted(spans, has[e]);
            assert_ok(ligi_interests_add(&interests, &own[e],
                                         ligi_interests_at(&interests, spans[i].number), &gained));
            assert_int_equal(gained, !before);
            has[e][i] = 1;
        }
        e = (uint32_t)ligi_rng_below(&rng, ENTRIES);
        assert_int_equal(ligi_interests_first(&interests, &own[e]) != NULL,
                         is_wanted(spans, has[e]));
        if (step % 5000 == 4999) {
            interests.last = LIGI_INTERESTS_SEVERAL / 2;
            assert_true(ligi_interests_stale(&interests));
            renumber_all(&interests, own);
            assert_false(ligi_interests_stale(&interests));
        }
    }
    assert_true(interests.cell_count <= ENTRIES * WORKERS);
    ligi_interests_fini(&interests);
}

static void many_endings_find_room(void **state)
{
    enum { MANY = 5000 };
    static uint32_t numbers[MANY];
    ligi_interests interests = {0};
    uint32_t entry = 0;
    int gained;

    (void)state;
    for (int i = 0; i < MANY; i++)
        assert_ok(ligi_interests_open(&interests, 0, i, &numbers[i]));
    for (int i = 0; i < MANY; i++)
        assert_true(ligi_interests_at(&interests, numbers[i])->end == i);
    assert_ok(
        ligi_interests_add(&interests, &entry, ligi_interests_at(&interests, numbers[7]), &gained));
    ligi_interests_close(&interests, ligi_interests_at(&interests, numbers[7]));
    for (int i = 0; i < MANY; i++) { /* none of them is mistaken for the one that is over */
        assert_ok(ligi_interests_open(&interests, 0, i, &numbers[7]));
        assert_null(ligi_interests_first(&interests, &entry));
        ligi_interests_close(&interests, ligi_interests_at(&interests, numbers[7]));
    }
    ligi_interests_fini(&interests);
}

/* --- an agenda, compared with a list that is searched --- */

typedef struct one {
    int64_t start, end;
    uint32_t id;
    int begun, over;
} one;

typedef struct twin {
    one all[SEGMENTS];
    size_t count;
    ligi_agenda agenda;
} twin;

static one *find(twin *t, const ligi_intent_segment *segment)
{
    one *found = &t->all[segment->entries[0]];

    assert_int_equal(found->start, segment->start);
    assert_int_equal(found->end, segment->end);
    return found;
}

static void one_round(twin *t, int64_t clock, int64_t window)
{
    ligi_intent_segment *segment;

    ligi_agenda_gather(&t->agenda, clock);
    while ((segment = ligi_agenda_begin(&t->agenda, clock, window)) != NULL) {
        one *found = find(t, segment);
        assert_false(found->begun || found->over);
        assert_true(found->start <= clock + window && found->end > clock);
        found->begun = 1;
    }
    while ((segment = ligi_agenda_end(&t->agenda, clock)) != NULL) {
        one *found = find(t, segment);
        assert_true(found->begun && !found->over && found->end <= clock);
        found->over = 1;
        ligi_agenda_free(&t->agenda, segment);
    }
    assert_true(ligi_agenda_rest(&t->agenda, clock, window));
}

static void check_round(const twin *t, int64_t clock, int64_t window)
{
    int64_t due = INT64_MAX;
    uint64_t left = 0;

    for (size_t i = 0; i < t->count; i++) {
        const one *o = &t->all[i];
        if (o->begun)
            assert_int_equal(o->over, o->end <= clock);
        else if (o->end > clock)
            assert_true(o->start > clock + window);
        int64_t at = o->over ? INT64_MAX : o->begun ? o->end : o->start - window;
        if (!o->begun && o->start <= clock + window)
            continue; /* ended before it began */
        left += !o->over;
        due = at < due ? at : due;
    }
    assert_int_equal(atomic_load(&t->agenda.due), due);
    assert_int_equal(atomic_load(&t->agenda.key_count), left);
}

static void an_agenda_is_a_list(void **state)
{
    twin *t = calloc(1, sizeof *t);
    int64_t clock = 0;
    ligi_rng rng;

    (void)state;
    assert_non_null(t);
    ligi_agenda_init(&t->agenda);
    ligi_rng_init(&rng, 11, 0, 0);
    for (int step = 0; step < STEPS; step++) {
        if (ligi_rng_below(&rng, 3) == 0)
            clock += (int64_t)ligi_rng_below(&rng, 4);
        if (ligi_rng_below(&rng, 2) && t->count < SEGMENTS) {
            uint32_t id = (uint32_t)t->count;
            int64_t start = clock - 5 + (int64_t)ligi_rng_below(&rng, 60);
            one *o = &t->all[t->count++];
            *o = (one){start, start + 1 + (int64_t)ligi_rng_below(&rng, 20), id, 0, 0};
            assert_ok(ligi_agenda_put(&t->agenda, &id, 1, o->start, o->end));
        }
        if (ligi_rng_below(&rng, 2)) {
            int64_t window = 1 + (int64_t)ligi_rng_below(&rng, 30);
            one_round(t, clock, window);
            check_round(t, clock, window);
        }
    }
    one_round(t, INT64_MAX - 100, 10);
    assert_int_equal(atomic_load(&t->agenda.key_count), 0);
    assert_ok(ligi_agenda_put(&t->agenda, &(uint32_t){3}, 1, INT64_MIN, INT64_MAX));
    ligi_agenda_fini(&t->agenda);
    free(t);
}

static void due_is_brought_forward(void **state)
{
    ligi_agenda agenda;
    uint32_t entry = 1;

    (void)state;
    ligi_agenda_init(&agenda);
    assert_false(ligi_agenda_is_due(&agenda, 1000));
    assert_true(ligi_agenda_rest(&agenda, 0, 10));
    assert_ok(ligi_agenda_put(&agenda, &entry, 1, 100, 101));
    assert_false(ligi_agenda_is_due(&agenda, 89));
    assert_true(ligi_agenda_is_due(&agenda, 90));
    assert_ok(ligi_agenda_put(&agenda, &entry, 1, 50, 101));
    assert_true(ligi_agenda_is_due(&agenda, 40));
    /* Put after gather: rest sees it, and a segment that is due at once causes another pass. */
    ligi_agenda_gather(&agenda, 0);
    assert_ok(ligi_agenda_put(&agenda, &entry, 1, 30, 31));
    assert_true(ligi_agenda_rest(&agenda, 0, 10));
    assert_true(ligi_agenda_is_due(&agenda, 20));
    assert_false(ligi_agenda_is_due(&agenda, 19));
    assert_ok(ligi_agenda_put(&agenda, &entry, 1, 5, 6));
    assert_false(ligi_agenda_rest(&agenda, 0, 10));
    ligi_agenda_fini(&agenda);
}

static void too_many_are_refused(void **state)
{
    ligi_agenda agenda;
    uint32_t entry = 0;

    (void)state;
    ligi_agenda_init(&agenda);
    assert_ok(ligi_agenda_put(&agenda, NULL, 0, 0, 1));
    assert_status(ligi_agenda_put(&agenda, &entry, LIGI_INTENT_KEYS_MAX + 1, 0, 1), LIG_E_LIMIT);
    atomic_store(&agenda.key_count, LIGI_INTENT_KEYS_MAX);
    assert_status(ligi_agenda_put(&agenda, &entry, 1, 0, 1), LIG_E_LIMIT);
    assert_says("have not ended");
    atomic_store(&agenda.key_count, 0);
    ligi_agenda_fini(&agenda);
}

/* --- one thread puts, another takes --- */

enum { PUTS = 20000 };

static void *put_many(void *context)
{
    ligi_agenda *agenda = context;

    for (uint32_t i = 0; i < PUTS; i++)
        if (ligi_agenda_put(agenda, &i, 1, i, i + 1) != LIG_OK)
            return agenda;
    return NULL;
}

static void none_is_lost_between_threads(void **state)
{
    ligi_agenda agenda;
    pthread_t thread;
    uint64_t begun = 0, sum = 0;
    void *failed;

    (void)state;
    ligi_agenda_init(&agenda);
    assert_int_equal(pthread_create(&thread, NULL, put_many, &agenda), 0);
    while (begun < PUTS) {
        ligi_intent_segment *segment;
        ligi_agenda_gather(&agenda, -1);
        while ((segment = ligi_agenda_begin(&agenda, -1, PUTS)) != NULL) {
            begun++;
            sum += segment->entries[0];
        }
        (void)ligi_agenda_rest(&agenda, -1, PUTS);
    }
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(sum, (uint64_t)PUTS * (PUTS - 1) / 2);
    ligi_agenda_fini(&agenda);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interests_are_the_latest_ends),
        cmocka_unit_test(many_endings_find_room),
        cmocka_unit_test(an_agenda_is_a_list),
        cmocka_unit_test(due_is_brought_forward),
        cmocka_unit_test(too_many_are_refused),
        cmocka_unit_test(none_is_lost_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
