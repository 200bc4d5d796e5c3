#include "params/rows/optimizer.h"

#include <math.h>

static int fraction(double value)
{
    return value >= 0 && value < 1;
}

static int not_negative(double value)
{
    return value >= 0 && isfinite(value);
}

lig_status ligi_optimizer_check(const lig_params_optimizer *optimizer, uint32_t dtype,
                                const char *table)
{
    if (optimizer->kind >= LIGI_OPTIMIZERS)
        return lig_fail(LIG_E_INVALID, "table '%s': unknown optimizer %u", table, optimizer->kind);
    if (optimizer->kind == LIG_PARAMS_ADD)
        return LIG_OK;
    if (dtype != LIG_FLOAT32 && dtype != LIG_FLOAT64 && dtype != LIG_BFLOAT16)
        return lig_fail(LIG_E_INVALID,
                        "table '%s': an optimizer needs rows of float32, float64 or bfloat16, "
                        "not %s",
                        table, lig_dtype_name(dtype));
    if (!not_negative(optimizer->lr) || !not_negative(optimizer->eps) ||
        !not_negative(optimizer->weight_decay))
        return lig_fail(LIG_E_INVALID,
                        "table '%s': lr %g, eps %g and weight_decay %g must be finite and not "
                        "negative",
                        table, optimizer->lr, optimizer->eps, optimizer->weight_decay);
    if (optimizer->kind == LIG_PARAMS_ADAM &&
        (!fraction(optimizer->beta1) || !fraction(optimizer->beta2)))
        return lig_fail(LIG_E_INVALID, "table '%s': beta1 %g and beta2 %g must be in [0, 1)", table,
                        optimizer->beta1, optimizer->beta2);
    return LIG_OK;
}

uint64_t ligi_optimizer_state_count(uint32_t kind, uint32_t length)
{
    switch (kind) {
    case LIG_PARAMS_ADAGRAD: return length;
    case LIG_PARAMS_ROWWISE_ADAGRAD: return 1;
    case LIG_PARAMS_ADAM: return 2 * (uint64_t)length + 1;
    default: return 0;
    }
}

ligi_push_step ligi_optimizer_step(const lig_params_optimizer *optimizer, double lr)
{
    return (ligi_push_step){lr, optimizer->eps, optimizer->beta1, optimizer->beta2,
                            optimizer->weight_decay};
}
