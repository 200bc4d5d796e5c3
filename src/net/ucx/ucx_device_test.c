#include "net/ucx/ucx_device.h"

#include "base/test.h"

#define BEFORE                                                                                     \
    "#\n# UCP context\n#\n#     component 0  :  self\n#     component 4  :  ib\n#\n"               \
    "#            md 0  :  component 0  self \n#            md 4  :  component 4  mlx5_0 \n#\n"
#define LINE(number, rest) "#      resource " #number "  :  md 4  dev 2  flags " rest "\n"
#define HOST LINE(0, "-- self/memory0") LINE(1, "-- tcp/eth0") LINE(2, "-- cma/memory")

static void finds_devices(void **state)
{
    static const struct {
        const char *text;
        int found;
    } cases[] = {
        {"", 0},
        {BEFORE HOST "#\n", 0},
        {BEFORE HOST LINE(12, "-- rc_mlx5/mlx5_0:1") "#\n", 1},
        {BEFORE LINE(0, "-- rc_verbs/rocep0s6:1") HOST, 1},
        {BEFORE HOST LINE(3, "-- dc_mlx5/mlx5_0:1"), 1},
        {BEFORE HOST LINE(3, "-- ud_verbs/mlx4_0:2"), 1},
        {BEFORE HOST LINE(3, "-- srd/rdmap0s6:1"), 1},
        /* For connecting alone: UCX_TLS=tcp has these where there is a card. */
        {BEFORE HOST LINE(3, "a- ud_mlx5/mlx5_0:1"), 0},
        {BEFORE HOST LINE(3, "a- ud_mlx5/mlx5_0:1") LINE(4, "-- rc_mlx5/mlx5_0:1"), 1},
        {BEFORE HOST LINE(3, "-- cuda_copy/cuda") LINE(4, "-- tcp/rc_0"), 0},
        {"# resource", 0},
        {"# resource 1 : md 1 dev 1 flags --", 0},
        {"#      resource 1  :  md 4  dev 2  flags -- \n# rc_mlx5/mlx5_0:1\n", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(ligi_ucx_device_in(cases[i].text), cases[i].found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_devices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
