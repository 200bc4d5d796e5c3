#include "launch/launch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH_DIGITS = 8, ORDER_BYTES_MAX = 60000 /* what a pipe takes at once */ };

/* --- hosts ----------------------------------------------------------------------------------- */

static lig_status take_line(const char *path, char *line, launch_host *host, int *found)
{
    char *rest, *name, *word;
    line[strcspn(line, "#\n")] = '\0';
    name = strtok_r(line, " \t\r", &rest);
    *found = name != NULL;
    if (name == NULL)
        return LIG_OK;
    if (name[0] == '-')
        return lig_fail(LIG_E_INVALID, "'%s': invalid host name '%s'", path, name);
    host->slots = 1;
    while ((word = strtok_r(NULL, " \t\r", &rest)) != NULL) {
        char *end;
        host->slots = strncmp(word, "slots=", 6) == 0 ? strtoull(word + 6, &end, 10) : 0;
        if (host->slots == 0 || host->slots > LAUNCH_PROCESSES_MAX || *end != '\0')
            return lig_fail(LIG_E_INVALID, "'%s': expected HOST [slots=N], found '%s'", path, word);
    }
    return cli_format(&host->name, "%s", name);
}

static lig_status read_lines(const char *path, FILE *file, launch_host *hosts, size_t *count)
{
    char line[1024];
    int found;
    while (fgets(line, sizeof line, file) != NULL) {
        if (*count == LAUNCH_PROCESSES_MAX)
            return lig_fail(LIG_E_LIMIT, "'%s' lists more than %d hosts", path,
                            LAUNCH_PROCESSES_MAX);
        LIG_TRY(take_line(path, line, &hosts[*count], &found));
        *count += (size_t)found;
    }
    return *count > 0 ? LIG_OK : lig_fail(LIG_E_INVALID, "'%s' lists no hosts", path);
}

lig_status launch_hosts_read(const char *path, launch_host **hosts, size_t *count)
{
    launch_host *list;
    size_t used = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return cli_fail_path(path, "open");
    lig_status status = cli_alloc(&list, LAUNCH_PROCESSES_MAX, sizeof *list);
    if (status == LIG_OK) {
        status = read_lines(path, file, list, &used);
        if (status != LIG_OK)
            launch_hosts_destroy(list, used);
    }
    fclose(file);
    LIG_TRY(status);
    *hosts = list;
    *count = used;
    return LIG_OK;
}

void launch_hosts_destroy(launch_host *hosts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(hosts[i].name);
    free(hosts);
}

const char *launch_host_of(const launch_host *hosts, size_t count, size_t index)
{
    uint64_t slots = 0, at;
    for (size_t i = 0; i < count; i++)
        slots += hosts[i].slots;
    at = index % slots;
    for (size_t i = 0; i < count; i++) {
        if (at < hosts[i].slots)
            return hosts[i].name;
        at -= hosts[i].slots;
    }
    return hosts[0].name;
}

/* --- orders ---------------------------------------------------------------------------------- */

static void put(FILE *file, const char *text)
{
    fwrite(text, 1, strlen(text) + 1, file);
}

/* How many there are, then each. */
static void put_list(FILE *file, char *const *list)
{
    size_t count = 0;
    char number[24];
    while (list[count] != NULL)
        count++;
    snprintf(number, sizeof number, "%zu", count);
    put(file, number);
    for (size_t i = 0; i < count; i++)
        put(file, list[i]);
}

/* The number of bytes in hexadecimal digits, then strings that end with NUL. */
lig_status launch_order_write(const launch_order *order, launch_text *text)
{
    char length[LENGTH_DIGITS + 1];
    FILE *file = open_memstream(&text->data, &text->bytes);
    if (file == NULL)
        return lig_fail(LIG_E_NOMEM, "out of memory for a command");
    fprintf(file, "%0*x", LENGTH_DIGITS, 0);
    put(file, order->secret);
    put(file, order->folder);
    put(file, order->grace);
    put_list(file, order->environment);
    put_list(file, order->words);
    int failed = ferror(file);
    if (fclose(file) != 0 || failed)
        return lig_fail(LIG_E_NOMEM, "out of memory for a command");
    if (text->bytes > ORDER_BYTES_MAX)
        return lig_fail(LIG_E_LIMIT, "command and environment have %zu bytes; over ssh at most %d",
                        text->bytes, ORDER_BYTES_MAX);
    snprintf(length, sizeof length, "%0*zx", LENGTH_DIGITS, text->bytes - LENGTH_DIGITS);
    memcpy(text->data, length, LENGTH_DIGITS);
    return LIG_OK;
}

static lig_status read_all(int fd, char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(fd, data + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return lig_fail(LIG_E_IO, "the launcher's connection was closed");
        done += (size_t)got;
    }
    return LIG_OK;
}

static const char *take(launch_text *rest)
{
    const char *found = rest->data;
    const char *end = memchr(rest->data, '\0', rest->bytes);
    if (end == NULL)
        return NULL;
    rest->bytes -= (size_t)(end + 1 - found);
    rest->data += end + 1 - found;
    return found;
}

static lig_status take_list(launch_text *rest, char ***list)
{
    const char *number = take(rest);
    size_t count = number != NULL ? strtoul(number, NULL, 10) : SIZE_MAX;
    if (count > rest->bytes) /* each takes at least one byte */
        return lig_fail(LIG_E_INVALID, "invalid command from the launcher");
    LIG_TRY(cli_alloc(list, count + 1, sizeof **list));
    for (size_t i = 0; i < count; i++) {
        (*list)[i] = (char *)(uintptr_t)take(rest);
        if ((*list)[i] == NULL)
            return lig_fail(LIG_E_INVALID, "invalid command from the launcher");
    }
    return LIG_OK;
}

lig_status launch_order_read(int fd, launch_order *order, launch_text *text)
{
    char length[LENGTH_DIGITS + 1] = "", *end;
    *order = (launch_order){0};
    LIG_TRY(read_all(fd, length, LENGTH_DIGITS));
    text->bytes = strtoul(length, &end, 16);
    if (*end != '\0' || text->bytes == 0 || text->bytes > ORDER_BYTES_MAX)
        return lig_fail(LIG_E_INVALID, "invalid command from the launcher (--remote is for "
                                       "ligament launch --hosts)");
    LIG_TRY(cli_alloc(&text->data, text->bytes, 1));
    LIG_TRY(read_all(fd, text->data, text->bytes));
    launch_text rest = *text;
    order->secret = take(&rest);
    order->folder = order->secret != NULL ? take(&rest) : NULL;
    order->grace = order->folder != NULL ? take(&rest) : NULL;
    if (order->grace == NULL)
        return lig_fail(LIG_E_INVALID, "invalid command from the launcher");
    LIG_TRY(take_list(&rest, &order->environment));
    LIG_TRY(take_list(&rest, &order->words));
    return order->words[0] != NULL
               ? LIG_OK
               : lig_fail(LIG_E_INVALID, "invalid command from the launcher: no program");
}

void launch_order_fini(launch_order *order)
{
    free(order->environment);
    free(order->words);
    *order = (launch_order){0};
}
