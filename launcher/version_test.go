package launcher

import (
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionIsSemantic(t *testing.T) {
	build := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123"}
	changed := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, c := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{build("v0.3.1"), "0.3.1"},
		{build("v1.0.0-rc.1", commit), "1.0.0-rc.1"},
		{build("(devel)"), nextVersion + "-dev"},
		{build("", changed), nextVersion + "-dev"},
		{build("v0.0.0-20261123174127-0123456789ab", commit), nextVersion + "-dev+0123456789ab"},
		{build("v0.3.2-0.20261123174127-0123456789ab+dirty", commit, changed), nextVersion + "-dev+0123456789ab.dirty"},
	} {
		if got := versionOf(c.info); got != c.want {
			t.Errorf("%q: %s, want %s", c.info.Main.Version, got, c.want)
		}
	}
	// The expression of semver.org, without what this project does not use.
	semantic := regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	if v := version(); !semantic.MatchString(v) {
		t.Errorf("%q is not a semantic version", v)
	}
}

// The image of the tests and the workflow have the Go of go.mod.
func TestGoVersionsAgree(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(text)
	if found == nil {
		t.Fatal("go.mod names no version of Go")
	}
	for _, name := range []string{"../Dockerfile", "../.github/workflows/ci.yml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if want := "golang:" + string(found[1]) + "-bookworm"; !strings.Contains(string(text), want) {
			t.Errorf("%s does not use %s", name, want)
		}
	}
}
