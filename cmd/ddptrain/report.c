/* report: an HTML page about run folders and sweeps. */
#include <stdio.h>

#include "command.h"
#include "report/report_page.h"

/* Of one folder, the page is in it. */
static void add_default(const struct command_line *line, struct text *out) {
    const char *folder = line->operand_count == 1 ? line->operands[0] : "";
    text_printf(out, "%s%sreport.html", folder, *folder ? "/" : "");
}

static status run(const struct command_line *line) {
    SCOPED_TEXT out = {0};
    struct report_summary summary;
    if (line->out)
        text_add(&out, line->out);
    else
        add_default(line, &out);
    status s = report_page_write(line->operands, line->operand_count, text_string(&out), &summary);
    if (!s && !line->is_quiet) {
        text_add(&out, ":");
        if (summary.runs) text_printf(&out, " %zu run%s,", summary.runs, text_plural(summary.runs, "s"));
        if (summary.sweeps) text_printf(&out, " %zu sweep%s,", summary.sweeps, text_plural(summary.sweeps, "s"));
        text_printf(&out, " %.2f MB; open it in a browser\n", (double)summary.bytes / 1e6);
        command_print(stdout, &out);
    }
    return s;
}

const struct subcommand subcommand_report = {
    .name = "report",
    .arguments = "RUN|SWEEP ... [--out FILE]",
    .help = "curves, configs, trials as one HTML page (default: report.html)",
    .run = run,
    .options = OPTION_OUT,
    .operand = "run or sweep folder",
    .max_operands = REPORT_MAX_FOLDERS,
};
