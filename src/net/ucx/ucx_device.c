#include "net/ucx/ucx_device.h"

#include <stdio.h>
#include <string.h>

/* UCX is queried instead of /sys/class/infiniband: a card's device file may be missing in this
 * container, UCX may be built without it, or the user may have set UCX_TLS or UCX_NET_DEVICES. The
 * only call that lists its resources prints them, in this form since 1.6:
 *   #      resource 3  :  md 2  dev 1  flags -- rc_mlx5/mlx5_0:1
 * `a` among the flags: kept for connecting alone. */
static int is_device(const char *line)
{
    static const char *const fast[] = {"rc_", "dc_", "ud_", "srd"};
    char flags[8], name[32];

    if (sscanf(line, "# resource %*u : md %*u dev %*u flags %7s %31[^/\n]/", flags, name) != 2 ||
        strchr(flags, 'a') != NULL)
        return 0;
    for (size_t i = 0; i < sizeof fast / sizeof *fast; i++)
        if (strncmp(name, fast[i], strlen(fast[i])) == 0)
            return 1;
    return 0;
}

int ligi_ucx_device_in(const char *text)
{
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        if (is_device(line))
            return 1;
        line = end != NULL ? end + 1 : NULL;
    }
    return 0;
}
