/*
 * A job by SimGrid: a host for each rank, a link for each that messages go along, an
 * activity for each computation and message, with their dependencies. No actors, which
 * would be slower.
 */
#include "tests/bench/simgrid_job.h"

#include <cmath>
#include <map>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

static const double flop_per_s = 1e12;

static sg4::ActivityPtr activity_of(const sg4::ExecPtr &exec, const sg4::CommPtr &comm)
{
    return exec ? sg4::ActivityPtr(exec) : sg4::ActivityPtr(comm);
}

static std::vector<sg4::Host *> make_hosts(sg4::NetZone *zone, const job *job)
{
    std::vector<sg4::Host *> hosts;

    for (int32_t i = 0; i < job->n_ranks; i++)
        hosts.push_back(
            zone->create_host("rank" + std::to_string(i), flop_per_s)->seal());
    return hosts;
}

/* A link for each pair of ranks, whichever the messages: they never meet there. */
static void make_links(sg4::NetZone *zone, const job *job,
                       const std::vector<sg4::Host *> &hosts, double bytes_per_s)
{
    std::map<std::pair<int32_t, int32_t>, bool> has_route;

    for (int32_t i = 0; i < job->n; i++) {
        const activity &at = job->activities[i];
        if (at.from == at.to || has_route[{at.from, at.to}])
            continue;
        has_route[{at.from, at.to}] = true;
        std::string name = std::to_string(at.from) + "to" + std::to_string(at.to);
        auto *link = zone->create_link(name, bytes_per_s)
                         ->set_sharing_policy(sg4::Link::SharingPolicy::FATPIPE)
                         ->seal();
        zone->add_route(hosts[at.from]->get_netpoint(), hosts[at.to]->get_netpoint(),
                        nullptr, nullptr, {sg4::LinkInRoute(link)}, false);
    }
}

extern "C" double simgrid_replay(const job *job, double bytes_per_s)
{
    int argc = 2;
    char name[] = "bench", quiet[] = "--log=xbt_cfg.thresh:warning";
    char *argv[] = {name, quiet, nullptr};

    sg4::Engine engine(&argc, argv);
    sg4::Engine::set_config("network/model:CM02"); /* bytes / bandwidth, nothing else */
    sg4::Engine::set_config("network/TCP-gamma:0");
    sg4::Engine::set_config("network/crosstraffic:0");
    sg4::Engine::set_config("surf/precision:1e-9");
    auto *zone = sg4::create_full_zone("cluster");
    const auto hosts = make_hosts(zone, job);
    make_links(zone, job, hosts, bytes_per_s);
    zone->seal();

    std::vector<sg4::ExecPtr> execs(job->n); /* one of the two is there */
    std::vector<sg4::CommPtr> comms(job->n);
    for (int32_t i = 0; i < job->n; i++) {
        const activity &at = job->activities[i];
        auto bytes = static_cast<uint64_t>(std::llround(at.time_s * bytes_per_s));
        if (at.from == at.to)
            execs[i] = sg4::Exec::init()
                           ->set_flops_amount(at.time_s * flop_per_s)
                           ->set_host(hosts[at.from]);
        else
            comms[i] = sg4::Comm::sendto_init(hosts[at.from], hosts[at.to])
                           ->set_payload_size(bytes);
        for (int32_t before : at.waits_for)
            if (before >= 0 && execs[before])
                execs[before]->add_successor(activity_of(execs[i], comms[i]));
            else if (before >= 0)
                comms[before]->add_successor(activity_of(execs[i], comms[i]));
    }
    for (int32_t i = 0; i < job->n; i++)
        activity_of(execs[i], comms[i])->vetoable_start();
    engine.run();
    return sg4::Engine::get_clock();
}
