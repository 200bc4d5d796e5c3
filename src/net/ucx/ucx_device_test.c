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

/* Whole reports: one as UCX 1.13 wrote it in a virtual machine, the others in the same words with
 * what UCX names on such machines. */
#define HEAD(components, domains) "#\n# UCP context\n#\n" components "#\n" domains "#\n"
#define PART(number, name) "#     component " #number "  :  " name "\n"
#define DOMAIN(number, part, name)                                                                 \
    "#            md " #number "  :  component " #part "  " name " \n"
#define ITEM(number, md, dev, rest)                                                                \
    "#      resource " #number "  :  md " #md "  dev " #dev "  flags " rest "\n"
#define PLAIN_HEAD                                                                                 \
    HEAD(PART(0, "self") PART(1, "tcp") PART(2, "sysv") PART(3, "posix") PART(4, "ib")             \
             PART(5, "rdmacm") PART(6, "cma"),                                                     \
         DOMAIN(0, 0, "self") DOMAIN(1, 1, "tcp") DOMAIN(2, 2, "sysv") DOMAIN(3, 3, "posix")       \
             DOMAIN(4, 6, "cma"))
#define CARD_HEAD(card)                                                                            \
    HEAD(PART(0, "self") PART(1, "tcp") PART(2, "sysv") PART(3, "posix") PART(4, "ib")             \
             PART(5, "rdmacm") PART(6, "cma"),                                                     \
         DOMAIN(0, 0, "self") DOMAIN(1, 1, "tcp") DOMAIN(2, 2, "sysv") DOMAIN(3, 3, "posix")       \
             DOMAIN(4, 4, card) DOMAIN(5, 5, "rdmacm") DOMAIN(6, 6, "cma"))
#define NEAR                                                                                       \
    ITEM(0, 0, 0, "-- self/memory0")                                                               \
    ITEM(1, 1, 1, "-- tcp/lo")                                                                     \
    ITEM(2, 1, 2, "-- tcp/eth0")                                                                   \
    ITEM(3, 2, 3, "-- sysv/memory") ITEM(4, 3, 3, "-- posix/memory")
#define CMA ITEM(14, 6, 3, "-- cma/memory") "#\n"
#define GPU                                                                                        \
    ITEM(5, 7, 5, "-- cuda_copy/cuda")                                                             \
    ITEM(6, 8, 5, "-- cuda_ipc/cuda") ITEM(7, 9, 5, "-- gdr_copy/cuda")

static const struct {
    const char *machine, *text;
    int found;
} machines[] = {
    {"a virtual machine", PLAIN_HEAD NEAR ITEM(5, 4, 3, "-- cma/memory") "#\n", 0},
    {"GPUs and no card", PLAIN_HEAD NEAR GPU CMA, 0},
    {"AMD's and Intel's GPUs",
     PLAIN_HEAD NEAR ITEM(5, 7, 5, "-- rocm_copy/rocm_cpy") ITEM(6, 8, 5, "-- rocm_ipc/rocm_ipc")
         ITEM(7, 9, 5, "-- ze_copy/GPU0") CMA,
     0},
    {"ConnectX with GPUs",
     CARD_HEAD("mlx5_0") NEAR GPU ITEM(8, 4, 4, "-- dc_mlx5/mlx5_0:1")
         ITEM(9, 4, 4, "-- rc_verbs/mlx5_0:1") ITEM(10, 4, 4, "-- rc_mlx5/mlx5_0:1")
             ITEM(11, 4, 4, "-- ud_verbs/mlx5_0:1") ITEM(12, 4, 4, "-- ud_mlx5/mlx5_0:1") CMA,
     1},
    {"ConnectX, UCX_TLS=dc", CARD_HEAD("mlx5_bond_0") ITEM(0, 4, 4, "-- dc_mlx5/mlx5_bond_0:1"), 1},
    {"ConnectX, UCX_TLS=ud_v", CARD_HEAD("mlx5_0") ITEM(0, 4, 4, "-- ud_verbs/mlx5_0:1"), 1},
    {"ConnectX, UCX_TLS=rc_v and what it connects by",
     CARD_HEAD("mlx5_0") ITEM(0, 4, 4, "-- rc_verbs/mlx5_0:1")
         ITEM(1, 4, 4, "a- ud_verbs/mlx5_0:1") "#\n",
     1},
    {"ConnectX, UCX_TLS=tcp,cuda, with what is kept for connecting",
     CARD_HEAD("mlx5_0") NEAR GPU ITEM(8, 4, 4, "a- ud_mlx5/mlx5_0:1")
         ITEM(9, 4, 4, "a- ud_verbs/mlx5_0:1") CMA,
     0},
    {"ConnectX whose device file is not in the container", PLAIN_HEAD NEAR CMA, 0},
    {"ConnectX as an Ethernet card, its port named after it",
     PLAIN_HEAD NEAR ITEM(5, 1, 4, "-- tcp/mlx5_0") CMA, 0},
    {"IP over InfiniBand", PLAIN_HEAD NEAR ITEM(5, 1, 4, "-- tcp/ib0") CMA, 0},
    {"E810, which has no mlx5 ways",
     CARD_HEAD("irdma0") NEAR ITEM(5, 4, 4, "-- rc_verbs/irdma0:1")
         ITEM(6, 4, 4, "-- ud_verbs/irdma0:1") CMA,
     1},
    {"RoCE by a card of Broadcom's",
     CARD_HEAD("bnxt_re0") NEAR ITEM(5, 4, 4, "-- rc_verbs/bnxt_re0:1") CMA, 1},
    {"EFA", CARD_HEAD("rdmap16s27") NEAR ITEM(5, 4, 4, "-- srd/rdmap16s27:1") CMA, 1},
    {"EFA before srd", CARD_HEAD("rdmap16s27") NEAR ITEM(5, 4, 4, "-- ud_verbs/rdmap16s27:1") CMA,
     1},
    /* Until 1.10 ways to connect were resources too. */
    {"1.8 without a card",
     PLAIN_HEAD NEAR ITEM(5, 5, 4, "-s rdmacm/sockaddr") ITEM(6, 1, 5, "-s tcp/sockaddr") CMA, 0},
    {"1.8 with one",
     CARD_HEAD("mlx5_0") NEAR ITEM(5, 5, 5, "-s rdmacm/sockaddr")
         ITEM(6, 4, 4, "-- rc_mlx5/mlx5_0:1") CMA,
     1},
    {"cut in the middle of the line", CARD_HEAD("mlx5_0") NEAR "#      resource 5  :  md 4  de", 0},
};

static void knows_machines(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        if (ligi_ucx_device_in(machines[i].text) != machines[i].found)
            fail_msg("%s", machines[i].machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_devices),
                                       cmocka_unit_test(knows_machines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
