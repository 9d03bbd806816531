"""Credentials for Swift: what OpenStack's users have already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncer.errors import UsageError
from syncer.remote.stores.swift import Keystone, TempAuth
from syncer.remote.stores.swift.credentials import Credentials, find_credentials
from syncer.remote.stores.swift.tokens import GivenToken

V1 = {"ST_AUTH": "https://old.example.org/auth/v1.0", "ST_USER": "a:b", "ST_KEY": "key"}
V3 = {
    "OS_AUTH_URL": "https://id.example.org:5000/v3",
    "OS_USERNAME": "me",
    "OS_PASSWORD": "secret",
    "OS_PROJECT_NAME": "files",
}
CLOUDS = """
clouds:
  home:
    auth:
      auth_url: https://id.example.org:5000/v3
      username: me
      project_id: 4711
      user_domain_name: Users
    region_name: two
    interface: internal
    cacert: /etc/ca.pem
  App_1:
    auth_type: v3applicationcredential
    auth: {auth_url: https://id.example.org, application_credential_id: i, application_credential_secret: s}
  old:
    auth_type: v1password
    auth: {auth_url: https://old.example.org/auth/v1.0, username: "a:b", password: key}
    verify: false
    object_store_endpoint_override: https://other.example.org/v1/AUTH_a
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


def found(place: str, environ: dict[str, str], home: Path) -> Credentials:
    return find_credentials(place, {"HOME": str(home), **environ})


def settings(home: Path, clouds: str, secure: str | None = None) -> Path:
    folder = home / ".config/openstack"
    folder.mkdir(parents=True)
    (folder / "clouds.yaml").write_text(clouds)
    if secure is not None:
        (folder / "secure.yaml").write_text(secure)
    return folder


def test_the_variables_of_version_1(tmp_path: Path) -> None:
    given = found("old.example.org", V1, tmp_path)
    assert isinstance(given.sign_in, TempAuth)
    assert (given.sign_in.user, given.sign_in.key) == ("a:b", "key")
    assert str(given.sign_in.address) == "https://old.example.org:443/auth/v1.0"


def test_the_variables_of_version_3(tmp_path: Path) -> None:
    more = {"OS_REGION_NAME": "one", "OS_ENDPOINT_TYPE": "internalURL", "OS_CACERT": "/ca", "OS_INSECURE": "true"}
    given = found("ID.example.org", V3 | more, tmp_path)
    assert isinstance(given.sign_in, Keystone)
    user = {"name": "me", "domain": {"id": "default"}, "password": "secret"}
    assert given.sign_in.identity == {"methods": ["password"], "password": {"user": user}}
    assert given.sign_in.scope == {"project": {"name": "files", "domain": {"id": "default"}}}
    assert (given.sign_in.region, given.sign_in.interface) == ("one", "internal")
    assert (given.ca_file, given.ignore_certificates) == ("/ca", True)


@pytest.mark.parametrize(
    ("more", "user", "project"),
    [
        ({"OS_USER_ID": "u", "OS_PROJECT_ID": "p"}, {"id": "u"}, {"id": "p"}),
        (
            {"OS_USER_DOMAIN_NAME": "U", "OS_PROJECT_DOMAIN_ID": "P"},
            {"name": "me", "domain": {"name": "U"}},
            {"name": "files", "domain": {"id": "P"}},
        ),
        (
            {"OS_DEFAULT_DOMAIN": "d"},
            {"name": "me", "domain": {"id": "d"}},
            {"name": "files", "domain": {"id": "d"}},
        ),
    ],
)
def test_users_and_projects_are_of_their_domains(
    more: dict[str, str], user: dict[str, Any], project: dict[str, Any], tmp_path: Path
) -> None:
    sign_in = found("id.example.org:5000", V3 | more, tmp_path).sign_in
    assert isinstance(sign_in, Keystone)
    assert sign_in.identity["password"] == {"user": {**user, "password": "secret"}}
    assert sign_in.scope == {"project": project}


def test_an_application_credential_needs_no_project(tmp_path: Path) -> None:
    secret = {"OS_AUTH_URL": V3["OS_AUTH_URL"], "OS_APPLICATION_CREDENTIAL_SECRET": "s"}
    by_id = found("id.example.org", secret | {"OS_APPLICATION_CREDENTIAL_ID": "i"}, tmp_path).sign_in
    by_name = {"OS_APPLICATION_CREDENTIAL_NAME": "n", "OS_USERNAME": "me"}
    named = found("id.example.org", secret | by_name, tmp_path).sign_in
    assert isinstance(by_id, Keystone)
    assert isinstance(named, Keystone)
    assert by_id.identity == {
        "methods": ["application_credential"],
        "application_credential": {"id": "i", "secret": "s"},
    }
    user = {"name": "me", "domain": {"id": "default"}}
    assert named.identity["application_credential"] == {"name": "n", "secret": "s", "user": user}
    assert by_id.scope is named.scope is None


def test_a_cloud_of_clouds_yaml_comes_with_its_secrets_and_before_the_environment(tmp_path: Path) -> None:
    settings(tmp_path, CLOUDS, "clouds: {home: {auth: {password: from secure}}}")
    home = found("home", V3, tmp_path)
    assert isinstance(home.sign_in, Keystone)
    user = {"name": "me", "domain": {"name": "Users"}, "password": "from secure"}
    assert home.sign_in.identity["password"] == {"user": user}
    assert home.sign_in.scope == {"project": {"id": "4711"}}
    assert (home.sign_in.region, home.sign_in.interface, home.ca_file) == ("two", "internal", "/etc/ca.pem")
    app = found("App_1", {}, tmp_path).sign_in
    assert isinstance(app, Keystone)
    assert app.identity["application_credential"] == {"id": "i", "secret": "s"}
    old = found("old", {}, tmp_path)
    assert isinstance(old.sign_in, TempAuth)
    assert str(old.sign_in.storage) == "https://other.example.org:443/v1/AUTH_a"
    assert old.ignore_certificates


def test_the_file_that_a_variable_names_is_the_only_one(tmp_path: Path) -> None:
    settings(tmp_path, CLOUDS)
    other = tmp_path / "mine.yaml"
    other.write_text("clouds: {mine: {auth: {auth_url: http://h, username: u, password: p}}}")
    assert found("mine", {"OS_CLIENT_CONFIG_FILE": str(other)}, tmp_path).sign_in.address.host == "h"
    with pytest.raises(UsageError, match="has mine"):
        found("home", {"OS_CLIENT_CONFIG_FILE": str(other)}, tmp_path)


def test_passwords_of_the_user_do_not_go_where_a_file_in_the_working_folder_says(tmp_path: Path) -> None:
    """Breaks when somebody else's clouds.yaml is joined with the user's own secure.yaml."""
    settings(tmp_path, CLOUDS, "clouds: {home: {auth: {password: mine}}}")
    Path("clouds.yaml").write_text(CLOUDS.replace("id.example.org", "evil.example.org"))
    with pytest.raises(UsageError, match="password is missing"):
        found("home", {}, tmp_path)


@pytest.mark.parametrize(
    ("place", "environ", "said"),
    [
        ("id.example.org", {}, "neither OS_AUTH_URL nor ST_AUTH is set"),
        ("other.example.org", V3, "OS_AUTH_URL names id.example.org"),
        ("id.example.org:443", V3, "OS_AUTH_URL names id.example.org"),
        ("id.example.org", {"OS_AUTH_URL": V3["OS_AUTH_URL"]}, "OS_PASSWORD is missing"),
        ("id.example.org", V3 | {"OS_USERNAME": ""}, "OS_USERNAME is missing"),
        ("id.example.org", V3 | {"OS_AUTH_URL": "https://id.example.org/v2.0"}, "expected version 3"),
        ("old.example.org", {"ST_AUTH": V1["ST_AUTH"]}, "ST_USER, ST_KEY is missing"),
        ("x", {"ST_AUTH": "gopher://x"}, "no address"),
    ],
)
def test_what_is_missing_is_told(place: str, environ: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        found(place, environ, tmp_path)


@pytest.mark.parametrize(
    "text",
    ["[1, 2]", "clouds: 1", "clouds: {home: {auth: 7}}", "clouds: {home: {auth: {username: u}}}", "a: {secret", "\x00",
     "clouds: {home: {profile: rackspace, auth: {auth_url: http://h}}}", "&a [*a]", "[" * 5000, "x" * (1 << 21)],
)  # fmt: skip
def test_a_clouds_yaml_that_is_none_is_told_without_what_is_in_it(text: str, tmp_path: Path) -> None:
    settings(tmp_path, text)
    with pytest.raises(UsageError, match=r"clouds\.yaml") as error:
        found("home", {}, tmp_path)
    assert "secret" not in str(error.value)


TOKEN = {"OS_AUTH_TOKEN": "given", "OS_STORAGE_URL": "https://store.example.org/v1/AUTH_a"}


@pytest.mark.parametrize(
    ("place", "more"),
    [
        ("store.example.org", {}),
        ("STORE.example.org:443", {"OS_CACERT": "/ca"}),
        ("id.example.org", {"OS_AUTH_URL": V3["OS_AUTH_URL"], "OS_USERNAME": "me"}),
        ("old.example.org", {"ST_AUTH": V1["ST_AUTH"]}),
    ],
)
def test_a_token_that_was_given_needs_no_password(place: str, more: dict[str, str], tmp_path: Path) -> None:
    given = found(place, TOKEN | more, tmp_path)
    assert isinstance(given.sign_in, GivenToken)
    assert str(given.sign_in.address) == "https://store.example.org:443/v1/AUTH_a"
    assert given.ca_file == more.get("OS_CACERT")


def test_a_password_counts_before_a_token(tmp_path: Path) -> None:
    """An old token may have been kept with it."""
    assert isinstance(found("id.example.org", V3 | TOKEN, tmp_path).sign_in, Keystone)
    assert isinstance(found("old.example.org", V1 | TOKEN, tmp_path).sign_in, TempAuth)


@pytest.mark.parametrize("given", [{"OS_AUTH_TOKEN": "given"}, TOKEN])
def test_a_token_goes_nowhere_that_its_variables_do_not_name(given: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="OS_AUTH_TOKEN counts with OS_STORAGE_URL"):
        found("other.example.org", given, tmp_path)


def test_what_is_no_token_is_told_without_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="OS_AUTH_TOKEN is no token") as told:
        found("store.example.org", TOKEN | {"OS_AUTH_TOKEN": "hid\nden"}, tmp_path)
    assert "hid" not in str(told.value)
