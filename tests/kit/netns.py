"""A network of its own: nodes in network namespaces on one bridge, for tests, benchmarks and the demo.

    with Lan(3, home=tmp_path, ipv4=False, mtu=1400) as lan:
        one, two, _ = lan.nodes
        daemon = one.start(BLOCKSYNC, "watch")
        two.loses(200, "ether type 0x88b5")
        two.link_down()

Every node has one interface, `lan0`, on a port of the bridge, which is in a namespace called the switch; it has a HOME
with the XDG folders below it. Nothing touches an interface of the machine.

A namespace has no name: it lives as long as a process that waits for the end of this one. So two runs never meet, and
of a run that is killed nothing stays but what it has started; namespaces and interfaces go with the last of that.

A node shares the machine's mounts: what is mounted in one is seen by all, and `/sys` shows the machine's interfaces.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

INTERFACE: Final = "lan0"
BRIDGE: Final = "br0"
TOOLS: Final = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
CAPABILITIES: Final = {12: "CAP_NET_ADMIN", 13: "CAP_NET_RAW", 21: "CAP_SYS_ADMIN"}
CLONE_NEWNET: Final = 0x40000000
ETH_P_ALL: Final = 3
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_RCVBUFFORCE: Final = 33
BURST_BYTES: Final = 256 << 10
"""Of a shaped link. Less than this can't keep up with 1 Gbit/s at 250 ticks a second."""

IPV6: Final = "/proc/sys/net/ipv6/conf/default"
PATIENCE_S: Final = 120.0
"""For what must come: a link, a frame, the end of a killed process."""

Argument = str | Path | bytes


class NoNamespacesError(Exception):
    """This process may not make network namespaces here: the message says what it lacks."""


def why_not() -> str | None:
    """What is missing for a network of its own, in words; None: nothing."""
    tools = [f"{tool} (Debian: {package})" for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if tools:
        return f"not installed: {', '.join(tools)}"
    status = Path("/proc/self/status").read_text().splitlines()
    held = int(next(line for line in status if line.startswith("CapEff:")).split()[1], 16)
    lacking = [name for bit, name in CAPABILITIES.items() if not held >> bit & 1]
    if lacking:
        return f"this process has not {', '.join(lacking)}: network namespaces need it; run it as root"
    probe = ["unshare", "--net", "ip", "link", "add", BRIDGE, "type", "bridge"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    return f"no network namespace with a bridge can be made here: {done.stderr.strip()}" if done.returncode else None


def available() -> bool:
    """Whether networks can be made here. For the demo; tests let `Lan` fail."""
    return why_not() is None


class Namespace:
    """One network namespace, held by a process that ends when this one does."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        try:
            self._holder.stdin.write(b"\n")
            self._holder.stdin.flush()
            # It answers when the namespace is made.
            assert self._holder.stdout.readline() == b"\n", "unshare --net failed"
            self._descriptor = os.open(f"/proc/{self._holder.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            # All that runs in here is killed at the end: it must never be the machine's own.
            assert not os.path.samestat(os.fstat(self._descriptor), os.stat("/proc/self/ns/net"))
        except BaseException:
            self._holder.kill()
            self._reap()
            raise

    @property
    def pid(self) -> int:
        """The process that holds it."""
        return self._holder.pid

    def wrap(self, command: Sequence[Argument]) -> list[Argument]:
        """The command line that runs a command in here."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *command]

    def do(self, *command: Argument, text: str | None = None) -> str:
        """Run a command that must succeed; returns its stdout."""
        done = subprocess.run(self.wrap(command), input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{text or ''}{done.stdout}{done.stderr}"
        return done.stdout

    def ip(self, *lines: str) -> None:
        """Do what these lines tell iproute2."""
        self.do("ip", "-batch", "-", text="".join(f"{line}\n" for line in lines))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread in here: sockets opened now stay here. No await and no other thread's work in between."""
        libc = ctypes.CDLL(None, use_errno=True)
        back = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(libc, self._descriptor)
            try:
                yield
            finally:
                _enter(libc, back)
        finally:
            os.close(back)

    def processes(self) -> list[int]:
        """All that run in here, but for the holder."""
        ours = os.fstat(self._descriptor)
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in {self.pid, os.getpid()}:
                with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                    theirs = (entry / "ns/net").stat()
                    if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino):
                        found.append(int(entry.name))
        return found

    def kill_all(self) -> None:
        """SIGKILL whatever still runs in here, all at once, and wait until it is gone."""
        while left := self.processes():
            with ExitStack() as stack:
                descriptors: dict[int, int] = {}
                for pid in left:
                    with suppress(ProcessLookupError):
                        descriptors[pid] = os.pidfd_open(pid)
                        stack.callback(os.close, descriptors[pid])
                        signal.pidfd_send_signal(descriptors[pid], signal.SIGKILL)
                for pid, descriptor in descriptors.items():
                    assert ended(descriptor), f"process {pid} can't be killed"

    def close(self) -> None:
        """Kill what is left, and let the namespace go."""
        self.kill_all()
        os.close(self._descriptor)
        self._reap()

    def _reap(self) -> None:
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.close()  # the end of what `cat` reads
        self._holder.stdout.close()
        self._holder.wait()


@dataclass(eq=False)
class Node:
    """One machine of the network.

    Attributes:
        number: From 1.
        namespace: Where its commands run.
        port: The interface of the switch that its `lan0` hangs on.
        home: Its HOME.
        mac: Of `lan0`.
        link_local: Its fe80 address on `lan0`, without the zone.
        ipv4: Its IPv4 address, None without one.
    """

    number: int
    namespace: Namespace
    switch: Namespace
    port: str
    home: Path
    mac: str
    link_local: str
    ipv4: str | None
    started: list[subprocess.Popen[Any]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """With a HOME of its own. Peers are as users have them: this network ends at its bridge."""
        return {
            **os.environ,
            "BLOCKSYNC_PEERS": "on",
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_STATE_HOME": str(self.home / ".local/state"),
            "XDG_DATA_HOME": str(self.home / ".local/share"),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
        }

    def run(self, *command: Argument, expect: int | None = 0, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `expect=None` accepts every exit code."""
        settings: dict[str, Any] = {"env": self.environment, "capture_output": True, "text": True} | options
        done = subprocess.run(self.namespace.wrap(command), check=False, **settings)
        if expect is not None:
            told = f"{done.stdout}\n{done.stderr}"
            assert done.returncode == expect, f"node {self.number}: {command}: exit code {done.returncode}\n{told}"
        return done

    def start(self, *command: Argument, **options: Any) -> subprocess.Popen[Any]:
        """Start a command; it is killed with the network. Popen's options."""
        process = subprocess.Popen(self.namespace.wrap(command), **({"env": self.environment} | options))
        self.started.append(process)
        return process

    @contextmanager
    def inside(self) -> Iterator[None]:
        """`Namespace.inside`."""
        with self.namespace.inside():
            yield

    def link_down(self) -> None:
        """Pull the cable: `lan0` has no carrier."""
        self.switch.ip(f"link set {self.port} down")

    def link_up(self) -> None:
        """Put the cable in again; returns when frames pass."""
        self.switch.ip(f"link set {self.port} up")
        self.settle()

    def settle(self) -> None:
        """Wait until the kernel has noticed the cable at both ends: it does so in its own time, up to a second."""
        deadline = time.monotonic() + PATIENCE_S
        while not (_forwards(self.switch, self.port) and _has_carrier(self.namespace)):
            assert time.monotonic() < deadline, f"node {self.number}: the link does not come up"
            time.sleep(0.005)

    def shape(self, mbit_s: float | None) -> None:
        """Limit the cable, each way (token bucket); None: no limit."""
        for namespace, interface in ((self.namespace, INTERFACE), (self.switch, self.port)):
            _unshape(namespace, interface)
            if mbit_s is not None:
                limit = f"rate {round(mbit_s * 1_000_000)}bit burst {BURST_BYTES} latency 50ms"
                namespace.do("tc", "qdisc", "add", "dev", interface, "root", "tbf", *limit.split())

    def loses(self, per_mille: int, match: str = "") -> None:
        """Lose so many of 1,000 frames at random, each way; 0: none. match: only those (nft: "ether type 0x88b5")."""
        assert shutil.which("nft"), "nft is not installed (Debian: nftables)"
        for namespace, interface in ((self.namespace, INTERFACE), (self.switch, self.port)):
            table = f"netdev blocksync-{interface}"
            lines = [f"add table {table}", f"delete table {table}"]
            if per_mille:
                hook = f"type filter hook ingress device {interface} priority 0;"
                rule = f"{match} numgen random mod 1000 <= {per_mille - 1} drop"
                lines += [
                    f"add table {table}",
                    f"add chain {table} losing {{ {hook} }}",
                    f"add rule {table} losing {rule}",
                ]
            namespace.do("nft", "-f", "-", text="".join(f"{line}\n" for line in lines))

    def add_interface(self, name: str) -> None:
        """A further cable to the switch. It has an fe80 address and no IPv4."""
        self.switch.ip(
            f"link add {self.port}{name} type veth peer name {name} netns {self.namespace.pid}",
            f"link set {self.port}{name} master {BRIDGE} up",
        )
        self.namespace.ip(f"link set {name} up")

    def remove_interface(self, name: str) -> None:
        """Take a cable and its interface away; also `lan0`."""
        self.namespace.ip(f"link del {name}")

    def kill(self, process: subprocess.Popen[Any]) -> None:
        """SIGKILL what `start` has started, and wait for its end."""
        process.kill()
        process.wait()

    def end(self) -> None:
        """SIGKILL all that runs here, and wait for its end."""
        self.namespace.kill_all()
        for process in self.started:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            self.kill(process)


class Frame(msgspec.Struct, frozen=True):
    """A frame that entered the switch.

    Attributes:
        port: Where: `Node.port`.
        data: From the destination address on, 14 bytes of Ethernet header first.
    """

    port: str
    data: bytes

    @property
    def ethertype(self) -> int:
        """What it carries."""
        return int.from_bytes(self.data[12:14], "big")

    @property
    def is_broadcast(self) -> bool:
        """To all, or to a multicast group."""
        return bool(self.data[0] & 1)


class Capture:
    """All frames that enter the switch from its ports, each once."""

    def __init__(self, switch: Namespace) -> None:
        with switch.inside():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
        self._socket.setblocking(False)

    def frames(self) -> list[Frame]:
        """Those since the last call, the oldest first.

        Raises:
            AssertionError: More came than the kernel could keep.
        """
        found = []
        with suppress(BlockingIOError):
            while True:
                data, (port, _, kind, _, _) = self._socket.recvfrom(1 << 17)
                if kind != socket.PACKET_OUTGOING and port != BRIDGE:
                    found.append(Frame(port, data))
        _, lost = struct.unpack("=II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        assert lost == 0, f"{lost} frames were not captured"
        return found

    def until(self, enough: Callable[[list[Frame]], bool]) -> list[Frame]:
        """Wait for frames until there are enough of them; returns all since the last call."""
        found = self.frames()
        while not enough(found):
            assert select.select([self._socket], [], [], PATIENCE_S)[0], f"only {len(found)} frames came"
            found += self.frames()
        return found

    def close(self) -> None:
        """Stop."""
        self._socket.close()


class Lan:
    """A bridge and its nodes.

    Args:
        count: Nodes, 1 to 99.
        home: Folder below which each node gets its HOME.
        ipv4: Addresses 10.99.0.NUMBER/24. Without: only what IPv6 makes itself.
        ipv6: Without, IPv6 is switched off.
        mtu: Of each cable, bytes.

    Raises:
        NoNamespacesError: From `__enter__`: this process may not do that, and what it lacks.
    """

    def __init__(self, count: int, *, home: Path, ipv4: bool = True, ipv6: bool = True, mtu: int = 1500) -> None:
        self._count, self._home, self._ipv4, self._ipv6, self._mtu = count, home, ipv4, ipv6, mtu
        self._stack = ExitStack()
        self.nodes: list[Node] = []

    def __enter__(self) -> Self:
        """Build it."""
        reason = why_not()
        if reason is not None:
            raise NoNamespacesError(reason)
        with ExitStack() as stack:
            self.switch = stack.enter_context(_held())
            self.switch.ip(
                f"link add {BRIDGE} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
                f"link set {BRIDGE} mtu {self._mtu} up",
            )
            for number in range(1, self._count + 1):
                self.nodes.append(self._add(number, stack.enter_context(_held())))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take it down, with all that runs in it. What can't be ended in one node spares none of the others."""
        with self._stack as stack:
            for node in self.nodes:
                stack.callback(node.end)

    @contextmanager
    def capture(self) -> Iterator[Capture]:
        """Listen to what enters the switch from now on."""
        made = Capture(self.switch)
        try:
            yield made
        finally:
            made.close()

    def _add(self, number: int, namespace: Namespace) -> Node:
        port = f"p{number}"
        mac = f"02:00:00:00:00:{number:02x}"
        # Addresses are of use at once, without the second that looking for duplicates takes.
        settings = {"accept_dad": 0, "router_solicitations": 0, "disable_ipv6": int(not self._ipv6)}
        namespace.do("sh", "-c", "".join(f"echo {value} >{IPV6}/{name}\n" for name, value in settings.items()))
        self.switch.ip(
            f"link add {port} mtu {self._mtu} type veth"
            f" peer name {INTERFACE} address {mac} mtu {self._mtu} netns {namespace.pid}",
            f"link set {port} master {BRIDGE} up",
        )
        ipv4 = f"10.99.0.{number}" if self._ipv4 else None
        addresses = [f"address add {ipv4}/24 broadcast + dev {INTERFACE}"] if ipv4 else []
        namespace.ip("link set lo up", *addresses, f"link set {INTERFACE} addrgenmode eui64 up")
        home = self._home / f"node-{number}"
        home.mkdir(parents=True, exist_ok=True)
        node = Node(number, namespace, self.switch, port, home, mac, f"fe80::ff:fe00:{number:x}", ipv4)
        node.settle()
        return node


@contextmanager
def _held() -> Iterator[Namespace]:
    namespace = Namespace()
    try:
        yield namespace
    finally:
        namespace.close()


def _enter(libc: ctypes.CDLL, descriptor: int) -> None:
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def _forwards(switch: Namespace, port: str) -> bool:
    told = json.loads(switch.do("ip", "-json", "-details", "link", "show", port))[0]
    return bool(told["linkinfo"]["info_slave_data"]["state"] == "forwarding")


def _has_carrier(namespace: Namespace) -> bool:
    """Also the IPv6 address, where it gets one."""
    told = json.loads(namespace.do("ip", "-json", "address", "show", INTERFACE))[0]
    scopes = {address["scope"] for address in told["addr_info"] if not address.get("tentative")}
    has_ipv6 = namespace.do("cat", f"{IPV6}/disable_ipv6").strip() == "0"
    return told["operstate"] == "UP" and (not has_ipv6 or "link" in scopes)


def ended(descriptor: int) -> bool:
    """Wait for the end of a process, by its pidfd."""
    return bool(select.select([descriptor], [], [], PATIENCE_S)[0])


def _unshape(namespace: Namespace, interface: str) -> None:
    if "tbf" in namespace.do("tc", "qdisc", "show", "dev", interface):
        namespace.do("tc", "qdisc", "del", "dev", interface, "root")
