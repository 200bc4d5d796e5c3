#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "net/secure/ipsec_mb_library.h"

#define LIBRARY "libIPSec_MB.so.1"

typedef struct mb_symbol {
    const char *name;
    size_t offset;
} mb_symbol;

#define SYMBOL(member, name, parameters)                                                           \
    {"aes_gcm_" name "_vaes_avx512", offsetof(ligi_ipsec_mb, member)},
static const mb_symbol symbols[] = {LIGI_IPSEC_MB_CALLS(SYMBOL)};

/* The library's processor check ignores whether the kernel saves the wide registers; the compiler's
 * does not. */
static int processor_fits(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vaes") &&
           __builtin_cpu_supports("vpclmulqdq");
#else
    return 0;
#endif
}

lig_status ligi_ipsec_mb_load(ligi_ipsec_mb *calls)
{
    if (!processor_fits())
        return lig_fail(LIG_E_UNSUPPORTED,
                        "ipsec-mb is used only on processors with VAES and AVX-512");
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL)
        return lig_fail(LIG_E_UNSUPPORTED, "cannot load ipsec-mb (Debian: libipsec-mb1): %s",
                        dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL)
            return lig_fail(LIG_E_UNSUPPORTED, "%s lacks %s", LIBRARY, symbols[i].name);
        memcpy((char *)calls + symbols[i].offset, &address, sizeof address);
    }
    return LIG_OK;
}
