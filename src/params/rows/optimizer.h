/* The effect of a push on a row: settings, and the state stored with the row. The formulas are
 * those of torch.optim. */
#ifndef LIGI_OPTIMIZER_H
#define LIGI_OPTIMIZER_H

#include <ligament/params.h>

#define LIGI_OPTIMIZERS 5

typedef struct ligi_push_step {
    double lr, eps, beta1, beta2, weight_decay;
} ligi_push_step;

/* Errors name the table. */
lig_status ligi_optimizer_check(const lig_params_optimizer *optimizer, uint32_t dtype,
                                const char *table);
/* Elements of state of a row of that length. */
uint64_t ligi_optimizer_state_count(uint32_t kind, uint32_t length);
/* Whether the result depends on the order of two pushes. */
static inline int ligi_optimizer_ordered(const lig_params_optimizer *optimizer)
{
    return optimizer->kind > LIG_PARAMS_SGD ||
           (optimizer->kind == LIG_PARAMS_SGD && optimizer->weight_decay != 0);
}
ligi_push_step ligi_optimizer_step(const lig_params_optimizer *optimizer, double lr);

#endif
