package launcher

import (
	"regexp"
	"runtime/debug"
	"strings"
)

// nextVersion is the semantic version that is being worked on: what is built between two
// releases is a pre-release of it.
const nextVersion = "0.1.0"

// release matches the version of a tag, as the go command records it. What it makes up for
// other commits has a time and a revision behind it.
var release = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[a-z]+\.?\d*)?$`)

// version is gorun's semantic version: that of its tag if it was built of one, else
// 0.1.0-dev+abc123def456, with the revision if the go command has recorded it, and dirty
// behind that if files were changed.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nextVersion + "-dev"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	if release.MatchString(info.Main.Version) {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = "+" + s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ".dirty"
		}
	}
	if revision == "" {
		dirty = ""
	}
	return nextVersion + "-dev" + revision + dirty
}
