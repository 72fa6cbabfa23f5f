"""The lab: AWS on one machine. Real hosts, a real proxy, an emulated API.

The only part of the project that knows it is not AWS. Nothing but its tests imports it. From the bottom up:

    paths, system, processes, ports, apt    names and places; running programs; who holds a port; mirrors
    image, layer, hostfs                    what hosts are made of: a Debian tree, and this lab's files over it
    network, cgroups, host                  the VPC, and one host: `prepare`, `boot`, `run`, `stop`, `power_loss`
    imds                                    a metadata service for each host; to be served between `prepare` and `boot`
    loadbalancer, haproxy                   NLB, ALB and AWS's endpoints inside the VPC, as one HAProxy
    emulator                                the AWS API: moto and what it lacks
    cleanup                                 what is left of a lab, and its removal
"""
