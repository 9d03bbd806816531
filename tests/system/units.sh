# What `under_systemd` of test_package.py runs in a guest, as root: /later.deb is the next version of what is installed.
main() { systemctl show -P MainPID "$1"; }
holds() {  # PID: effective capabilities of all its threads, and those it could get
    grep -h CapEff: /proc/$1/task/*/status | sort -u | cut -f2 | tr '\n' ' '
    awk '/CapAmb:|CapBnd:|NoNewPrivs:/ { printf "%s ", $2 }' /proc/$1/status
    echo
}
until_ok() { timeout 120 sh -c "until $1; do sleep 0.2; done" >/dev/null; }
refused() { if "$@" >/refused 2>&1; then echo "this should have failed: $*"; exit 1; fi; cat /refused; }
export LC_ALL=C.UTF-8
none=0000000000000000

echo the server
systemctl enable --quiet --now blocksync-serve
test "$(holds "$(main blocksync-serve)")" = "$none $none $none 1 "
systemctl reload blocksync-serve
systemctl is-active blocksync-serve
server=/var/lib/private/blocksync-server

echo a mount by its unit
blocksync init /srv/volume
mkdir -p /srv/images /etc/blocksync
printf 'VOLUME=/srv/volume\nMOUNTPOINT=/srv/images\nOPTIONS=allow_other\n' >/etc/blocksync/images.mount
systemctl start blocksync-mount@images
process=$(main blocksync-mount@images)
test "$(holds $process)" = "0000000000200002 0000000000200002 $none 1 "
head -c 300000 /dev/urandom >/srv/images/disk
sync /srv/images/disk
sha256sum </srv/images/disk >/sum
refused dpkg --install /later.deb | grep /srv/images
kill -9 $process
until_ok "systemctl is-active blocksync-mount@images && test \$(systemctl show -P MainPID blocksync-mount@images) != $process"
sha256sum </srv/images/disk | cmp - /sum
systemctl stop blocksync-mount@images
refused findmnt /srv/images
systemctl show -P Result blocksync-mount@images

echo a mount by fstab
echo '/srv/volume /srv/images fuse.blocksync defaults,nofail 0 0' >>/etc/fstab
systemctl daemon-reload
systemctl start srv-images.mount
sha256sum </srv/images/disk | cmp - /sum
systemctl stop srv-images.mount
refused findmnt /srv/images

echo the helper of native mounts
systemctl start blocksync-passthrough.socket
runuser -u ann -- python3 -c '
import socket
helper = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
helper.connect("/run/blocksync/passthrough")
helper.send(b"x")
helper.recv(100)
'
test "$(holds "$(main blocksync-passthrough)")" = "00000000002000c0 00000000002000c0 $none 1 "

echo watch of a user, as the administrator starts it
runuser -u ann -- mkdir -p /home/ann/work /home/ann/.config/blocksync
install -o ann -m 600 $server/token /home/ann/token
ann() { runuser -u ann -- env HOME=/home/ann XDG_RUNTIME_DIR=/run/user/$(id -u ann) "$@"; }
ann blocksync link /home/ann/work pithos+http://127.0.0.1:8800/v1/default/work --token-file /home/ann/token
printf '[metrics]\nlisten = "127.0.0.1:8802"\n' >/home/ann/.config/blocksync/config.toml
systemctl start blocksync-watch@ann
process=$(main blocksync-watch@ann)
grep -q 88b5 /proc/$process/net/packet  # its one socket, for which it had CAP_NET_RAW; nothing else opens such a one here
test "$(holds $process)" = "$none 0000000000002000 $none 1 "
ann sh -c 'echo hello >/home/ann/work/hello'
until_ok "blocksync usage $server --json | grep -q 'work.*objects.:3'"
until_ok "python3 -c 'import urllib.request as r; r.urlopen(\"http://127.0.0.1:8802/healthz\")' 2>&1"
systemctl reload blocksync-watch@ann
systemctl is-active blocksync-watch@ann
refused ann blocksync watch | grep -q 'in use'

echo an upgrade
served=$(main blocksync-serve)
dpkg --force-unsafe-io --install /later.deb >/dev/null
dpkg-query -W -f '${Version}\n' blocksync | grep later
systemctl is-active blocksync-serve blocksync-watch@ann
test "$(main blocksync-serve)" != $served
test "$(main blocksync-watch@ann)" != $process

echo watch as the user starts it
systemctl stop blocksync-watch@ann
systemctl show -P Result blocksync-watch@ann
loginctl enable-linger ann
until_ok 'systemctl is-active user@$(id -u ann)'
ann systemctl --user start blocksync-watch
process=$(ann systemctl --user show -P MainPID blocksync-watch)
test "$(holds $process | cut -d' ' -f1)" = $none
ann systemctl --user reload blocksync-watch
ann systemctl --user is-active blocksync-watch
ann systemctl --user stop blocksync-watch
systemctl start blocksync-watch@ann

echo removed and purged
dpkg --remove blocksync >/dev/null
refused systemctl is-active blocksync-serve blocksync-watch@ann blocksync-passthrough.socket blocksync-passthrough
dpkg --purge blocksync >/dev/null
systemctl --failed --no-legend
cat >/kept <<'END'
/etc/blocksync
/home/ann/.config/blocksync
/home/ann/.local/share/blocksync
/home/ann/.local/state/blocksync
/home/ann/work/.blocksync
/var/lib/blocksync-server
/var/lib/private/blocksync-server
END
find / -xdev -path /proc -prune -o -iname '*blocksync*' -print | sort >/left
diff /kept /left
echo all of it
