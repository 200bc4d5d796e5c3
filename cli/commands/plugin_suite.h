/* The conformance suite that `ligament plugin-test` runs on a backend. */
#ifndef CLI_PLUGIN_SUITE_H
#define CLI_PLUGIN_SUITE_H

#include "cli.h"

typedef struct cli_suite {
    const char *name, *config;
    const lig_backend_ops *ops;
    lig_backend *backend;       /* of a backend that saves and loads sets */
    lig_checkpoint *checkpoint; /* of one that carries stores */
    size_t tensor_count;        /* of the check with many tensors */
} cli_suite;

typedef struct cli_suite_check {
    const char *title;
    /* 1 when the backend has what is checked; NULL: every backend has. */
    int (*applies)(const cli_suite *suite);
    /* LIG_OK, or the sentence that tells what was wrong. */
    lig_status (*run)(cli_suite *suite);
} cli_suite_check;

/* Both end with a NULL title. */
extern const cli_suite_check cli_set_checks[];
extern const cli_suite_check cli_optional_checks[];

/* The same calls for both kinds of backend. */
lig_status cli_suite_open(cli_suite *suite);
void cli_suite_close(cli_suite *suite);
lig_status cli_suite_save(cli_suite *suite, const char *set, const lig_tensor *tensors,
                          size_t count);
lig_status cli_suite_load(cli_suite *suite, const char *set, const lig_tensor *tensors,
                          size_t count);

/* A call that must fail with a sentence of its own: LIG_OK when `status` is a failure (of kind
 * `wanted`, unless that is LIG_OK) and the sentence is not the one that cli_suite_arm left there.
 */
void cli_suite_arm(void);
lig_status cli_suite_refused(lig_status status, lig_status wanted, const char *what);

/* --- tensors to move
 * -------------------------------------------------------------------------------- */

typedef struct cli_spec {
    const char *name;
    uint32_t dtype, ndim;
    int64_t shape[4];
} cli_spec;

/* Tensors in one block of memory with marks between them, which nobody may overwrite. */
typedef struct cli_sample {
    lig_tensor *tensors;
    size_t count;
    int64_t (*shapes)[4];
    char **names;
    uint8_t *memory;
    uint64_t *offsets; /* [count + 1] of the mark before each tensor and of the last one */
    uint64_t bytes;
} cli_sample;

lig_status cli_sample_create(cli_sample *sample, const cli_spec *specs, size_t count,
                             uint64_t seed);
void cli_sample_destroy(cli_sample *sample);
/* Same names and shapes, other contents. */
lig_status cli_sample_twin(cli_sample *twin, const cli_sample *sample, uint64_t seed);
/* LIG_OK when the contents are equal and no mark of `got` was touched; names the tensor otherwise.
 */
lig_status cli_sample_compare(const cli_sample *got, const cli_sample *wanted);
lig_status cli_sample_marks(const cli_sample *sample);

/* Saves the sample as `set`, loads it into a twin, compares, and sees that saving changed nothing.
 */
lig_status cli_round_trip(cli_suite *suite, const char *set, const cli_sample *sample);
lig_status cli_load_equals(cli_suite *suite, const char *set, const cli_sample *wanted);

#endif
