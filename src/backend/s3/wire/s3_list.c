#include "backend/s3/wire/s3_list.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/s3/wire/s3_xml.h"

int64_t ligi_s3_date_parse(const char *text)
{
    static const char *const formats[] = {"%Y-%m-%dT%H:%M:%S", "%a, %d %b %Y %H:%M:%S"};

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct tm parts = {0};
        if (strptime(text, formats[i], &parts) != NULL) {
            int64_t seconds = (int64_t)timegm(&parts);
            return seconds > 0 ? seconds : 0;
        }
    }
    return 0;
}

/* One field of an item; 0 if it is malformed. */
static int take_field(const ligi_s3_xml *xml, ligi_s3_list_item *item)
{
    char text[64];

    if (ligi_s3_xml_is(xml, LIGI_S3_XML_CLOSE, "Key"))
        return ligi_s3_xml_text(xml, item->key, sizeof item->key);
    if (ligi_s3_xml_is(xml, LIGI_S3_XML_CLOSE, "UploadId"))
        return ligi_s3_xml_text(xml, item->upload, sizeof item->upload);
    if (ligi_s3_xml_is(xml, LIGI_S3_XML_CLOSE, "Size")) {
        if (!ligi_s3_xml_text(xml, text, sizeof text))
            return 0;
        item->bytes = strtoull(text, NULL, 10);
    }
    if (ligi_s3_xml_is(xml, LIGI_S3_XML_CLOSE, "LastModified") ||
        ligi_s3_xml_is(xml, LIGI_S3_XML_CLOSE, "Initiated")) {
        if (!ligi_s3_xml_text(xml, text, sizeof text))
            return 0;
        item->date_s = ligi_s3_date_parse(text);
    }
    return 1;
}

static int is_item(const ligi_s3_xml *xml, ligi_s3_xml_event event)
{
    return ligi_s3_xml_is(xml, event, "Contents") || ligi_s3_xml_is(xml, event, "Upload");
}

/* The fields of an item are children of the root's children: depth 2 while they are open. */
int ligi_s3_list_parse(const char *body, size_t bytes, ligi_s3_list_visit visit, void *context,
                       int *truncated)
{
    ligi_s3_xml xml = ligi_s3_xml_over(body, bytes);
    ligi_s3_list_item item = {0};
    char text[8];
    int inside = 0;

    *truncated = 0;
    for (;;) {
        ligi_s3_xml_event event = ligi_s3_xml_next(&xml);
        if (event == LIGI_S3_XML_END || event == LIGI_S3_XML_BAD)
            return event == LIGI_S3_XML_END;
        if (event == LIGI_S3_XML_OPEN) {
            if (xml.depth == 2 && is_item(&xml, event)) {
                item = (ligi_s3_list_item){0};
                inside = 1;
            }
            continue;
        }
        if (xml.depth == 2 && inside && !take_field(&xml, &item))
            return 0;
        if (xml.depth != 1)
            continue;
        if (inside && item.key[0] != '\0' && visit(context, &item) != 0)
            return 1;
        inside = 0;
        if (ligi_s3_xml_is(&xml, event, "IsTruncated") && ligi_s3_xml_text(&xml, text, sizeof text))
            *truncated = strcmp(text, "true") == 0;
    }
}

int ligi_s3_upload_parse(const char *body, size_t bytes, char upload[LIGI_S3_UPLOAD_BYTES])
{
    ligi_s3_xml xml = ligi_s3_xml_over(body, bytes);
    ligi_s3_xml_event event;
    int found = 0;

    while ((event = ligi_s3_xml_next(&xml)) == LIGI_S3_XML_OPEN || event == LIGI_S3_XML_CLOSE)
        if (event == LIGI_S3_XML_CLOSE && xml.depth == 1 && ligi_s3_xml_is(&xml, event, "UploadId"))
            found = ligi_s3_xml_text(&xml, upload, LIGI_S3_UPLOAD_BYTES) && upload[0] != '\0';
    return found && event == LIGI_S3_XML_END;
}

int ligi_s3_complete_parse(const char *body, size_t bytes)
{
    ligi_s3_xml xml = ligi_s3_xml_over(body, bytes);
    ligi_s3_xml_event event = ligi_s3_xml_next(&xml);

    if (event != LIGI_S3_XML_OPEN || !ligi_s3_xml_is(&xml, event, "CompleteMultipartUploadResult"))
        return 0;
    while (event == LIGI_S3_XML_OPEN || event == LIGI_S3_XML_CLOSE)
        event = ligi_s3_xml_next(&xml);
    return event == LIGI_S3_XML_END;
}
