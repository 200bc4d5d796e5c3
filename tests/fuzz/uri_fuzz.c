#include "base/uri/option.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Any text is parsed or refused; what was parsed can be read and freed. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    if (text == NULL)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    ligi_uri uri;
    if (ligi_uri_parse(&uri, text) == LIG_OK) {
        uint64_t size;
        for (size_t i = 0; i < uri.option_count; i++)
            (void)ligi_parse_bytes(uri.options[i].value, &size);
        ligi_uri_fini(&uri);
    }
    free(text);
    return 0;
}
