/* The conformance suite that `ligament plugin-test` runs on a backend. */
#ifndef CLI_PLUGIN_SUITE_H
#define CLI_PLUGIN_SUITE_H

#include "cli.h"

typedef struct cli_suite {
    const char *name, *config;
    const lig_backend_ops *ops;
    lig_backend *backend;       /* for a backend that saves and loads sets */
    lig_checkpoint *checkpoint; /* for one that supports stores */
    size_t tensor_count;        /* in the check with many tensors */
} cli_suite;

typedef struct cli_suite_check {
    const char *title;
    /* Returns 1 if the backend implements what is checked; NULL if it is required. */
    int (*applies)(const cli_suite *suite);
    /* LIG_OK, or a status whose message says what was wrong. */
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

/* For a call that must fail with its own error message: LIG_OK if `status` is a failure (of kind
 * `wanted`, unless that is LIG_OK) and the message is not the one that cli_suite_arm set. */
void cli_suite_arm(void);
lig_status cli_suite_refused(lig_status status, lig_status wanted, const char *what);

/* --- tensors to move
 * -------------------------------------------------------------------------------- */

typedef struct cli_spec {
    const char *name;
    uint32_t dtype, ndim;
    int64_t shape[4];
} cli_spec;

/* Tensors in one block of memory with guards between them that must not be overwritten. */
typedef struct cli_sample {
    lig_tensor *tensors;
    size_t count;
    int64_t (*shapes)[4];
    char **names;
    uint8_t *memory;
    uint64_t *offsets; /* [count + 1] offsets of the guard before each tensor and of the last one */
    uint64_t bytes;
} cli_sample;

lig_status cli_sample_create(cli_sample *sample, const cli_spec *specs, size_t count,
                             uint64_t seed);
void cli_sample_destroy(cli_sample *sample);
/* Same names and shapes, different contents. */
lig_status cli_sample_twin(cli_sample *twin, const cli_sample *sample, uint64_t seed);
/* LIG_OK if the contents are equal and no guard of `got` was touched; names the tensor
 * otherwise. */
lig_status cli_sample_compare(const cli_sample *got, const cli_sample *wanted);
lig_status cli_sample_marks(const cli_sample *sample);

#endif
