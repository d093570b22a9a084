from headrace.cli.greeting import greeting

DOORS = {"kafka": ("127.0.0.1", 9092), "admin": ("127.0.0.1", 9642)}


def test_a_person_is_told_where_the_console_is_and_what_to_try() -> None:
    text = greeting(DOORS, is_colored=False)
    assert "http://127.0.0.1:9642/" in text
    assert "headrace topic create orders" in text
    assert "--bootstrap" not in text
    assert "\x1b" not in text


def test_other_ports_are_part_of_the_commands_to_try() -> None:
    text = greeting({**DOORS, "kafka": ("::1", 19092)}, is_colored=True)
    assert "--bootstrap [::1]:19092" in text
    assert "\x1b[1m" in text


def test_without_a_console_there_is_nothing_to_say() -> None:
    assert greeting({"kafka": ("127.0.0.1", 9092)}, is_colored=False) == ""
