# Becomes a process in a container of the image at $IMAGE: what a runtime does, without a daemon. Started by
# container.py, as root, in mount and process namespaces of its own. The network is the machine's.
#
# $ROOT: where the root is put together. $BINDS: lines `source target mode`. $WRITABLE: folders in memory. $COMMAND ...
set -eu

mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$ROOT"
mkdir "$ROOT/upper" "$ROOT/work" "$ROOT/root"
mount -t overlay -o "lowerdir=$IMAGE,upperdir=$ROOT/upper,workdir=$ROOT/work" overlay "$ROOT/root"
root=$ROOT/root

mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom; do
  : >"$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
printf '127.0.0.1 localhost %s\n' "$(hostname)" >"$root/etc/hosts"
for folder in $WRITABLE; do
  mkdir -p "$root$folder"
  mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root$folder"
done
printf '%s' "$BINDS" | while read -r source target mode; do
  mkdir -p "$root$target"
  mount --bind "$source" "$root$target"
  mount -o "remount,bind,$mode" "$root$target"
done
mount -o remount,ro "$root"

cd "$root"
exec chroot . /usr/bin/env -i --chdir="$WORKDIR" /usr/bin/setpriv --reuid="$USER_ID" --regid="$GROUP_ID" --clear-groups \
  --bounding-set=-all --inh-caps=-all --no-new-privs --pdeathsig=KILL -- /usr/bin/env -i "$@"
