#!/bin/sh
# openmpi5.sh installs Open MPI 5 beside the Open MPI 4 of Debian 12: the packages of Debian 13,
# from the machine's own mirror, with the C library that they need, in $tree, and
# mpirun.openmpi5, which runs with $tree/usr in the place of /usr in a mount namespace of its
# own. Ranks see the rest of the machine as it is. 80 MB are fetched and 90 unpacked.
set -eu
tree=/opt/openmpi5
command=/usr/local/bin/mpirun.openmpi5
[ ! -x $command ] || exit 0

sources=$(ls /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null || true)
mirror=$(awk '$1 == "URIs:" || $1 == "deb" { print $2; exit }' $sources)
signed=$(awk '$1 == "Signed-By:" { print "[signed-by=" $2 "]"; exit }' $sources)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
: >"$work/status" # as if nothing were installed: all that is needed is fetched
echo "deb $signed $mirror trixie main" >"$work/sources.list"
apt() {
	apt-get -q -o APT::Sandbox::User=root -o Dir::State="$work" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
		-o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null "$@"
}
apt update >/dev/null
apt install -y --no-install-recommends --download-only openmpi-bin >/dev/null

rm -rf $tree
mkdir -p $tree
for deb in "$work"/cache/archives/*.deb; do
	case $deb in
	*/libllvm* | */libamd* | */libhsa* | */libz3*) ;; # for AMD's GPUs
	*) dpkg-deb --extract "$deb" $tree ;;
	esac
done
# Its messages go by shared memory: without that it warns of each network that it tries.
cat >$command <<END
#!/bin/sh
export OMPI_MCA_btl="\${OMPI_MCA_btl:-self,sm}"
exec unshare --mount sh -c 'mount --bind $tree/usr /usr && exec mpirun.openmpi "\$@"' mpirun.openmpi5 "\$@"
END
chmod +x $command
$command --version | head -1
