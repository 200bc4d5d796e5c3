/* Any text: parsed or refused. What was parsed is walked, and every string is as long as it says.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t walk(const cli_json_value *value)
{
    size_t count = 1;
    double number;
    uint64_t whole;
    if (value->kind == CLI_JSON_STRING && strlen(value->text) != value->bytes)
        abort();
    cli_json_to_double(value, "x", &number);
    cli_json_to_u64(value, "x", &whole);
    for (const cli_json_value *at = cli_json_first(value); at != NULL;
         at = cli_json_next(value, at))
        count += walk(at);
    if (count != value->span)
        abort();
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cli_json *json;
    char *text = malloc(size + 1);
    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    if (cli_json_parse(text, size, 0, &json) == LIG_OK) {
        walk(cli_json_root(json));
        cli_json_destroy(json);
    }
    free(text);
    return 0;
}
