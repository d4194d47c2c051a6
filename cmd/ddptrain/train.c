/* train: the run of a rank. */
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "command.h"
#include "train/run/run.h"

/* Sets an alarm for a stop request before the end of the Slurm allocation, in time to save. */
void command_stop_before(double ends_at, double grace, struct log *log) {
    double left = ends_at - clock_unix(), margin = 2 * grace < left / 10 ? 2 * grace : left / 10;
    char when[32] = "?";
    struct tm parts;
    time_t end = (time_t)ends_at;
    if (ends_at <= 0 || left > 1e9) return;
    if (localtime_r(&end, &parts)) strftime(when, sizeof when, "%F %T", &parts);
    log_line(log, "the allocation ends at %s; this run stops and saves %.0f s before", when, margin > 0 ? margin : 0);
    alarm(left - margin > 1 ? (unsigned)(left - margin) : 1);
}

static status train(const struct command_line *line, const struct config *config, const struct dist_env *env,
                    struct log *log) {
    struct run_options options = {.folder = line->run_dir ? line->run_dir : line->config_run_folder,
                                  .is_fresh = line->is_fresh,
                                  .stop_after = line->stop_after,
                                  .trace = line->trace,
                                  .save_at = line->save_at,
                                  .overdue = command_end_overdue,
                                  .started = line->started};
    command_stop_before(env->ends_at, line->grace, env->rank == 0 ? log : NULL);
    return run_train(config, env, &options, log);
}

static status run(const struct command_line *line) { return command_on_ranks(line, train); }

const struct subcommand subcommand_train = {
    .name = "train",
    .arguments = "CONFIG [KEY=VALUE ...] [options]",
    .takes_overrides = true,
    .help = "train (ddptrain train CONFIG is the same)",
    .run = run,
    .options = OPTION_CPU_BIND | OPTION_FRESH | OPTION_TENSORBOARD | OPTION_STOP_AFTER | OPTION_RUN_DIR,
    .tensorboard = "train.tensorboard=true",
    .operand = "config",
    .saves = true,
};
