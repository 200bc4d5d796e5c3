#include "backend/s3/wire/s3_xml.h"

#include <string.h>

ligi_s3_xml ligi_s3_xml_over(const char *data, size_t bytes)
{
    return (ligi_s3_xml){.at = data, .end = data + bytes, .text = data, .text_end = data};
}

static size_t left(const ligi_s3_xml *xml)
{
    return (size_t)(xml->end - xml->at);
}

static int starts(const ligi_s3_xml *xml, const char *word)
{
    size_t bytes = strlen(word);

    return left(xml) >= bytes && memcmp(xml->at, word, bytes) == 0;
}

/* Moves behind the next `word`; 0 if there is none. */
static int skip_past(ligi_s3_xml *xml, const char *word)
{
    const char *found = memmem(xml->at, left(xml), word, strlen(word));

    if (found == NULL)
        return 0;
    xml->at = found + strlen(word);
    return 1;
}

static int is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int is_name_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':';
}

/* 0 if there is no name here. */
static int take_name(ligi_s3_xml *xml, ligi_s3_xml_name *name)
{
    const char *start = xml->at;

    while (xml->at < xml->end && is_name_letter(*xml->at)) {
        if (*xml->at == ':')
            start = xml->at + 1;
        xml->at++;
    }
    *name = (ligi_s3_xml_name){start, (size_t)(xml->at - start)};
    return name->bytes > 0;
}

/* Attributes up to the end of the tag: a '>' inside a quoted value does not end it. 0 at the end of
 * the input. */
static int skip_attributes(ligi_s3_xml *xml, int *empty)
{
    *empty = 0;
    while (xml->at < xml->end && *xml->at != '>') {
        char c = *xml->at++;
        if (c == '<')
            return 0;
        *empty = c == '/';
        if (c != '"' && c != '\'')
            continue;
        const char *close = memchr(xml->at, c, left(xml));
        if (close == NULL)
            return 0;
        xml->at = close + 1;
    }
    if (xml->at == xml->end)
        return 0;
    xml->at++;
    return 1;
}

static ligi_s3_xml_event close_tag(ligi_s3_xml *xml)
{
    ligi_s3_xml_name name;

    xml->at += 2;
    if (!take_name(xml, &name) || xml->depth == 0)
        return LIGI_S3_XML_BAD;
    while (xml->at < xml->end && is_space(*xml->at))
        xml->at++;
    const ligi_s3_xml_name *open = &xml->open[xml->depth - 1];
    if (xml->at == xml->end || *xml->at != '>' || name.bytes != open->bytes ||
        memcmp(name.data, open->data, name.bytes) != 0)
        return LIGI_S3_XML_BAD;
    xml->at++;
    xml->depth--;
    return LIGI_S3_XML_CLOSE;
}

static ligi_s3_xml_event open_tag(ligi_s3_xml *xml)
{
    ligi_s3_xml_name name;

    xml->at++;
    if (xml->depth == LIGI_S3_XML_DEPTH_MAX || (xml->depth == 0 && xml->started) ||
        !take_name(xml, &name) || !skip_attributes(xml, &xml->closing))
        return LIGI_S3_XML_BAD;
    xml->open[xml->depth++] = name;
    xml->started = 1;
    xml->text = xml->text_end = xml->at;
    return LIGI_S3_XML_OPEN;
}

static ligi_s3_xml_event tag(ligi_s3_xml *xml)
{
    xml->text_end = xml->at;
    return starts(xml, "</") ? close_tag(xml) : open_tag(xml);
}

/* A prolog, a processing instruction or a comment: 1 if one was skipped, 0 if there is none, -1 if
 * it does not end. CDATA is text (ligi_s3_xml_text). */
static int skip_aside(ligi_s3_xml *xml)
{
    if (starts(xml, "<?"))
        return skip_past(xml, "?>") ? 1 : -1;
    if (starts(xml, "<!--"))
        return skip_past(xml, "-->") ? 1 : -1;
    if (starts(xml, "<![CDATA["))
        return skip_past(xml, "]]>") ? 1 : -1;
    return 0;
}

ligi_s3_xml_event ligi_s3_xml_next(ligi_s3_xml *xml)
{
    if (xml->closing) {
        xml->closing = 0;
        xml->depth--;
        xml->text = xml->text_end;
        return LIGI_S3_XML_CLOSE;
    }
    /* What follows a closing tag is text of the outer element, which has children: nobody reads it.
     */
    xml->text = xml->at;
    while (xml->at < xml->end) {
        if (*xml->at != '<') {
            if (xml->depth == 0 && !is_space(*xml->at))
                return LIGI_S3_XML_BAD;
            xml->at++;
            continue;
        }
        int aside = skip_aside(xml);
        if (aside < 0 || (aside == 0 && starts(xml, "<!")))
            return LIGI_S3_XML_BAD;
        if (aside == 0)
            return tag(xml);
    }
    return xml->depth == 0 && xml->started ? LIGI_S3_XML_END : LIGI_S3_XML_BAD;
}

int ligi_s3_xml_is(const ligi_s3_xml *xml, ligi_s3_xml_event event, const char *name)
{
    const ligi_s3_xml_name *one = NULL;

    if (event == LIGI_S3_XML_OPEN && xml->depth > 0)
        one = &xml->open[xml->depth - 1];
    else if (event == LIGI_S3_XML_CLOSE && xml->depth < LIGI_S3_XML_DEPTH_MAX)
        one = &xml->open[xml->depth];
    return one != NULL && one->bytes == strlen(name) && memcmp(one->data, name, one->bytes) == 0;
}

/* --- text ----------------------------------------------------------------------------------- */

/* A code point as UTF-8; 0 for numbers that are none. */
static size_t put_utf8(uint32_t point, char out[4])
{
    if (point == 0 || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
        return 0;
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    size_t bytes = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = bytes - 1; i > 0; i--, point >>= 6)
        out[i] = (char)(0x80 | (point & 0x3F));
    static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(lead[bytes] | point);
    return bytes;
}

static int digit(char c, uint32_t base)
{
    int value = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : 99;
    return value < (int)base ? value : -1;
}

/* The number of "#38" or "#x26"; 0 if it is malformed or too large. */
static uint32_t numeric(const char *name, size_t bytes)
{
    uint32_t base = bytes > 1 && name[1] == 'x' ? 16 : 10, value = 0;
    size_t i = base == 16 ? 2 : 1;

    if (i == bytes)
        return 0;
    for (; i < bytes; i++) {
        int one = digit(name[i], base);
        if (one < 0 || value > 0x10FFFF)
            return 0;
        value = value * base + (uint32_t)one;
    }
    return value;
}

/* The entity from '&' to ';': its bytes in `out`, *skip what it takes of the input. */
static size_t entity(const char *at, const char *end, char out[4], size_t *skip)
{
    static const struct {
        const char *name;
        char value;
    } named[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    size_t within = (size_t)(end - at) < 12 ? (size_t)(end - at) : 12;
    const char *close = memchr(at, ';', within);

    if (close == NULL || close - at < 2)
        return 0;
    const char *name = at + 1;
    size_t bytes = (size_t)(close - name);
    *skip = bytes + 2;
    if (name[0] == '#')
        return put_utf8(numeric(name, bytes), out);
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strlen(named[i].name) == bytes && memcmp(named[i].name, name, bytes) == 0) {
            out[0] = named[i].value;
            return 1;
        }
    return 0;
}

/* A piece of text that is not plain: its bytes in *out, 0 bytes skipped if it is malformed. */
typedef struct text_piece {
    const char *data;
    size_t bytes, skip;
    char decoded[4];
} text_piece;

static void take_piece(const char *at, const char *end, text_piece *piece)
{
    ligi_s3_xml rest = {.at = at, .end = end};

    *piece = (text_piece){.data = at, .bytes = 1, .skip = 1};
    if (*at == '&') {
        piece->data = piece->decoded;
        piece->bytes = entity(at, end, piece->decoded, &piece->skip);
        if (piece->bytes == 0)
            piece->skip = 0;
    } else if (*at == '<') {
        int cdata = starts(&rest, "<![CDATA[");
        piece->skip = skip_aside(&rest) == 1 ? (size_t)(rest.at - at) : 0;
        piece->data = at + 9;
        piece->bytes = cdata && piece->skip >= 12 ? piece->skip - 12 : 0;
    }
}

int ligi_s3_xml_text(const ligi_s3_xml *xml, char *out, size_t out_bytes)
{
    size_t used = 0;

    for (const char *at = xml->text; at < xml->text_end;) {
        text_piece piece;
        take_piece(at, xml->text_end, &piece);
        if (piece.skip == 0 || piece.bytes >= out_bytes - used ||
            memchr(piece.data, '\0', piece.bytes) != NULL)
            return 0;
        memcpy(out + used, piece.data, piece.bytes);
        used += piece.bytes;
        at += piece.skip;
    }
    out[used] = '\0';
    return 1;
}
